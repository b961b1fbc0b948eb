// What people put into a .cu file of a PyTorch extension.
#include <torch/extension.h>

#include <cuda_runtime.h>

#define CHECK_INPUT(x) TORCH_CHECK(x.is_cuda() && x.is_contiguous(), #x " must be a contiguous CUDA tensor")

template <typename scalar_t>
__global__ void gate_kernel(const scalar_t* __restrict__ x, const scalar_t* __restrict__ g,
                            scalar_t* __restrict__ y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] / (scalar_t(1) + exp(-g[i]));
}

torch::Tensor gate(torch::Tensor x, torch::Tensor g) {
  CHECK_INPUT(x);
  CHECK_INPUT(g);
  auto y = torch::empty_like(x);
  const int n = x.numel();
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gate", ([&] {
    gate_kernel<scalar_t><<<(n + 255) / 256, 256>>>(
        x.data_ptr<scalar_t>(), g.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n);
  }));
  return y;
}

__global__ void product_kernel(const float* a, const float* b, float* c, int M, int N, int K) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < M && col < N) {
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += a[row * K + k] * b[k * N + col];
    c[row * N + col] = sum;
  }
}

torch::Tensor product(torch::Tensor a, torch::Tensor b) {
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2, "expected two matrices");
  int M = a.size(0);
  int K = a.size(1);
  int N = b.size(1);
  TORCH_CHECK(b.size(0) == K, "inner sizes differ");
  auto c = torch::empty({M, N}, a.options());
  dim3 block(16, 16);
  dim3 grid((N + 15) / 16, (M + 15) / 16);
  product_kernel<<<grid, block>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), M, N, K);
  return c;
}

__global__ void scale_rows_kernel(float* x, const float* w, int width, float factor) {
  float* row = x + blockIdx.x * width;
  for (int i = threadIdx.x; i < width; i += blockDim.x) row[i] = row[i] * factor + w[i];
}

// In place, and nothing is returned.
void scale_rows_(torch::Tensor& x, const torch::Tensor& w, double factor) {
  const int rows = x.size(0);
  const int width = x.size(-1);
  scale_rows_kernel<<<rows, 128>>>(x.data_ptr<float>(), w.data_ptr<float>(), width, (float)factor);
}

__global__ void take_kernel(const float* table, const int64_t* rows, float* out, int width) {
  const int64_t row = rows[blockIdx.x];
  for (int j = threadIdx.x; j < width; j += blockDim.x) out[blockIdx.x * width + j] = table[row * width + j];
}

torch::Tensor take(torch::Tensor table, torch::Tensor rows) {
  auto out = torch::empty({rows.size(0), table.size(1)}, table.options());
  take_kernel<<<rows.size(0), 64>>>(
      table.data_ptr<float>(), rows.data_ptr<int64_t>(), out.data_ptr<float>(), table.size(1));
  return out;
}

// @dice host=pick inputs(table=randn(n, 33), rows=randint(0, n, (17,), dtype=int64)) sizes(n=40; n=7)
__global__ void pick_kernel(const float* table, const int64_t* rows, float* out, int width) {
  const int64_t row = rows[blockIdx.x];
  for (int j = threadIdx.x; j < width; j += blockDim.x) out[blockIdx.x * width + j] = table[row * width + j];
}

torch::Tensor pick(torch::Tensor table, torch::Tensor rows) {
  auto out = torch::empty({rows.size(0), table.size(1)}, table.options());
  pick_kernel<<<rows.size(0), 64>>>(
      table.data_ptr<float>(), rows.data_ptr<int64_t>(), out.data_ptr<float>(), table.size(1));
  return out;
}

__global__ void shift_kernel(const float* x, float* y, int by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[(i + by) % n];
}

torch::Tensor shift(torch::Tensor x, int64_t by) {
  auto y = torch::empty_like(x);
  shift_kernel<<<(x.size(0) + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), by, x.size(0));
  return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("gate_forward", &gate, "gated values");
  m.def("product", &product);
  m.def("scale_rows_", &scale_rows_);
  m.def("take", &take);
  m.def("pick", &pick);
  m.def("shift", &shift);
}
