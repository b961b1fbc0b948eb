#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>
using namespace nvcuda;
using half_t = __half;

template <int BM, int BN, int BK>
__global__ void wmma_gemm(const half* A, const half* B, float* C, int M, int N, int K) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::fill_fragment(c, 0.0f);
  int row = blockIdx.y * 16, col = blockIdx.x * 16;
  for (int k = 0; k < K; k += BK) {
    wmma::load_matrix_sync(a, A + row * K + k, K);
    wmma::load_matrix_sync(b, B + k * N + col, N);
    wmma::mma_sync(c, a, b, c);
  }
  wmma::store_matrix_sync(C + row * N + col, c, N, wmma::mem_row_major);
}

__global__ void h2f(const half_t* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __half2float(x[i]);
}

__global__ void bf_add(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = __hadd(a[i], b[i]);
}

int gemm(const half* A, const half* B, float* C, int M, int N, int K) {
  if (M % 16 || N % 16 || K % 16) return 1;
  wmma_gemm<16, 16, 16><<<dim3(N / 16, M / 16), 32>>>(A, B, C, M, N, K);
  return 0;
}
void to_float(const half_t* x, float* y, int n) { h2f<<<(n + 255) / 256, 256>>>(x, y, n); }
void add(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int n) { bf_add<<<(n + 255) / 256, 256>>>(a, b, c, n); }
