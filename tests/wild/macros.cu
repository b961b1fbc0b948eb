#include <cuda_runtime.h>

#define TILE 16
#define IDX(r, c, ld) ((r) * (ld) + (c))
#define LAUNCH(kernel, n, ...) kernel<<<((n) + 255) / 256, 256>>>(__VA_ARGS__)
#define KERNEL_LOOP(i, n) for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)
#define GLOBAL __global__
#define DEFINE_BINARY(NAME, OP) \
  __global__ void NAME##_k(const float* a, const float* b, float* c, int n) { KERNEL_LOOP(i, n) c[i] = a[i] OP b[i]; }

DEFINE_BINARY(sub, -)
DEFINE_BINARY(mul, *)

GLOBAL void hidden(float* x, int n) { KERNEL_LOOP(i, n) x[i] = 0.f; }

__global__ void scale_by(const float* x, float* y, float s, int n) {
  KERNEL_LOOP(i, n) {
    y[i] = x[i] * s;
  }
}

__global__ void transpose(const float* in, float* out, int w, int h) {
  __shared__ float tile[TILE][TILE + 1];
  int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
  if (x < w && y < h) tile[threadIdx.y][threadIdx.x] = in[IDX(y, x, w)];
  __syncthreads();
  x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
  if (x < h && y < w) out[IDX(y, x, h)] = tile[threadIdx.x][threadIdx.y];
}

void run_scale(const float* x, float* y, float s, int n) { LAUNCH(scale_by, n, x, y, s, n); }
void run_transpose(const float* in, float* out, int w, int h) {
  dim3 b(TILE, TILE), g;
  g.x = (w + TILE - 1) / TILE;
  g.y = (h + TILE - 1) / TILE;
  transpose<<<g, b>>>(in, out, w, h);
}
