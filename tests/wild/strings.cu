#include <cuda_runtime.h>
#include <cstdio>

static const char* kDoc = R"doc(
__global__ void not_a_kernel(float* x) { x[0] = 1; }
{{{ "unbalanced
)doc";

/* __global__ void commented(float* x) { } */
// __global__ void also_commented(float* x) {

__global__ void say(const float* x, float* y, int n) {
  const char open = '{', quote = '"', esc = '\'';
  const char* text = "} // not a comment /* nor this */ \" still";
  const char* raw = R"(} " // )";
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int big = 1'000'000;
  if (i == 0 && n > big) printf("%c%c%c %s %s\n", open, quote, esc, text, raw);
  if (i < n) y[i] = x[i] + 1;
}

#if 0
__global__ void dead(float* x) { x[0] = 1; }
#endif

void run_say(const float* x, float* y, int n) { say<<<(n + 63) / 64, 64>>>(x, y, n); }
