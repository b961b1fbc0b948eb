#include <cuda_runtime.h>
#include <cstdint>

__device__ __forceinline__ float4 ldg_nc(const float4* p) {
  float4 r;
  asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];\n" : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w) : "l"(p));
  return r;
}

__global__ void copy4(const float4* __restrict__ in, float4* __restrict__ out, int n4) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n4) {
    float4 r = ldg_nc(in + i);
    asm volatile("{\n"
                 "  .reg .pred p;\n"
                 "  setp.ne.f32 p, %0, 0f00000000;\n"
                 "}\n" ::"f"(r.x));
    out[i] = r;
  }
}

__global__ void lane_ids(uint32_t* out, int n) {
  uint32_t lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = lane;
}

void run_copy4(const float4* in, float4* out, int n4) { copy4<<<(n4 + 255) / 256, 256>>>(in, out, n4); }
void run_lane_ids(uint32_t* out, int n) { lane_ids<<<(n + 255) / 256, 256>>>(out, n); }
