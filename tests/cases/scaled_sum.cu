#include <cuda_runtime.h>

// total[k] = factor * left[k] + right[k]
__global__ void scaled_sum(float factor, const float* left, const float* right, float* dst, int length) {
  int k = blockDim.x * blockIdx.x + threadIdx.x;
  if (k < length) {
    dst[k] = factor * left[k] + right[k];
  }
}

// Nothing else in this file launches it.
void call_scaled_sum(float factor, const float* left, const float* right, float* dst, int length, cudaStream_t on) {
  const int block = 256;
  const int grid = (length + block - 1) / block;
  scaled_sum<<<grid, block, 0, on>>>(factor, left, right, dst, length);
}
