#include <cuda_runtime.h>

__global__ void first(float* a, int n) {
  int i = threadIdx.x;
  if (i < n) a[i] = 1.f;
}

void helper(int n) {
  for (int i = 0; i < n; ++i) {
    if (i % 2 == 0) {

__global__ void second(float* a, int n) {
  int i = threadIdx.x;
  if (i < n) a[i] = 2.f;
}

__global__ void third(float* a, int n
{
  int i = threadIdx.x;
  if (i < n) a[i] = 3.f;
}

__global__ void fourth(float* a, int n) {
  const char* s = "unterminated;
  if (threadIdx.x < n) a[threadIdx.x] = 4.f;
}

__global__ void fifth(float* a, int n) { if (threadIdx.x < n) a[threadIdx.x] = 5.f; }
