#include <cuda_runtime.h>

// Two branches open one function, and the closing brace belongs to both.
#ifdef HAS_OFFSET
__global__ void amplify(float* v, const float* offset, float g, int n) {
  const float b = offset[blockIdx.y];
#else
__global__ void amplify(float* v, float g, int n) {
  const float b = 0.0f;
#endif
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) v[i] = v[i] * g + b;
}

__global__ void no_negatives(float* v, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && v[i] < 0.0f) v[i] = 0.0f;
}

void call_no_negatives(float* v, int n) { no_negatives<<<(n + 255) / 256, 256>>>(v, n); }
