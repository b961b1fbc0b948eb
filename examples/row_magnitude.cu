// Length of every row of a batch of activations after SiLU.
#include <cuda_runtime.h>
#include <math.h>

#define BLOCK 256

__global__ void row_magnitude(const float* act, float* mag, int rows, int cols) {
    __shared__ float sdata[BLOCK];
    int r = blockIdx.x;
    int t = threadIdx.x;
    float acc = 0.0f;
    for (int c = t; c < cols; c += blockDim.x) {
        float v = act[r * cols + c];
        v = v / (1.0 + exp(-v));
        acc += powf(v, 2.0f);
    }
    sdata[t] = acc;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (t < s) {
            sdata[t] += sdata[t + s];
        }
        __syncthreads();
    }
    if (t == 0) mag[r] = sqrt(sdata[0]);
}

void row_magnitude_cuda(const float* act, float* mag, int rows, int cols, cudaStream_t stream) {
    row_magnitude<<<rows, BLOCK, 0, stream>>>(act, mag, rows, cols);
}
