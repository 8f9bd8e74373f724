// Asks NVIDIA's occupancy calculator: lines of capability, warps, shared bytes and reserved bytes of
// a multiprocessor, threads, registers, shared bytes and barriers of a block.
#include <cstdio>
#include <cuda_occupancy.h>

int main() {
    int capability, warps, threads, registers, barriers;
    size_t most, reserved, shared;
    while (std::scanf("%d %d %zu %zu %d %d %zu %d", &capability, &warps, &most, &reserved, &threads,
                      &registers, &shared, &barriers) == 8) {
        cudaOccDeviceProp device;
        device.computeMajor = capability / 10;
        device.computeMinor = capability % 10;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = 32 * warps;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536;
        device.warpSize = 32;
        device.sharedMemPerBlock = 49152;
        device.sharedMemPerMultiprocessor = most;
        device.numSms = 1;
        device.sharedMemPerBlockOptin = most - reserved;
        device.reservedSharedMemPerBlock = reserved;
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1024;
        kernel.numRegs = registers;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = most - reserved;
        kernel.numBlockBarriers = barriers;
        cudaOccDeviceState state;
        cudaOccResult found;
        int error = cudaOccMaxActiveBlocksPerMultiprocessor(&found, &device, &kernel, &state, threads,
                                                            shared);
        std::printf("%d %d %d %d %d %d\n", error, found.activeBlocksPerMultiprocessor,
                    found.blockLimitRegs, found.blockLimitSharedMem, found.blockLimitWarps,
                    found.blockLimitBlocks);
    }
}
