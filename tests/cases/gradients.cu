#include <cuda_runtime.h>

// Nobody launches these here, and three integers could mean anything: only the lines below tell.
//
// @dice grid=(h+7)/8,(w+31)/32 block=32,8
// @dice in(image[h*pitch]) out(across[h*w], down[h*w])
// @dice sizes(w=960, h=540, pitch=1024; w=33, h=7, pitch=48) tol(rel=1e-6, abs=1e-6)
__global__ void gradients(float* image, float* across, float* down, int w, int h, int pitch) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  int xm = x > 0 ? x - 1 : x, xp = x < w - 1 ? x + 1 : x;
  int ym = y > 0 ? y - 1 : y, yp = y < h - 1 ? y + 1 : y;
  across[y * w + x] = 0.5f * (image[y * pitch + xp] - image[y * pitch + xm]);
  down[y * w + x] = 0.5f * (image[yp * pitch + x] - image[ym * pitch + x]);
}

// The same signature without a word about it.
__global__ void upside_down(float* src, float* dst, int w, int h, int pitch) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h) dst[y * w + x] = src[(h - 1 - y) * pitch + x];
}
