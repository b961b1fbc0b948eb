#include <cuda_runtime.h>

// The grammar stumbles over the aligned shared array; the kernel is found all the same.
template <typename Value, int kTeams>
__global__ void __launch_bounds__(kTeams * 32, 2)
    row_maximum(const Value* __restrict__ matrix, Value* __restrict__ maxima, int width) {
  extern __shared__ __align__(16) unsigned char raw[];
  Value* best_of = reinterpret_cast<Value*>(raw);
  const Value* row = matrix + static_cast<size_t>(blockIdx.x) * width;
  Value top = row[0];
#pragma unroll 4
  for (int c = threadIdx.x; c < width; c += kTeams * 32) {
    top = row[c] > top ? row[c] : top;
  }
  best_of[threadIdx.x] = top;
  __syncthreads();
  for (int half = kTeams * 16; half > 0; half >>= 1) {
    if (threadIdx.x < half && best_of[threadIdx.x + half] > best_of[threadIdx.x]) {
      best_of[threadIdx.x] = best_of[threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) maxima[blockIdx.x] = best_of[0];
}

template <typename Value>
void find_row_maxima(const Value* matrix, Value* maxima, int rows, int width, cudaStream_t on) {
  constexpr int kTeams = 4;
  auto chosen = &row_maximum<Value, kTeams>;
  const size_t shared = kTeams * 32 * sizeof(Value);
  cudaFuncSetAttribute(chosen, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
  chosen<<<dim3(rows), dim3(kTeams * 32), shared, on>>>(matrix, maxima, width);
}

template void find_row_maxima<float>(const float*, float*, int, int, cudaStream_t);
template void find_row_maxima<double>(const double*, double*, int, int, cudaStream_t);
