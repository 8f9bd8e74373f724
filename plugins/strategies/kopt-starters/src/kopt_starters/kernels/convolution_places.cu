using Element = $element;
// Of depth, height and width: extents of the input and the result, the kernel, and where a result reads.
// Result y takes tap t from input (y * S + B + t * T) / Z, where that is whole.
constexpr int CIN = $cin, COUT = $cout;
constexpr int D = $depth, H = $height, W = $width, OD = $out_depth, OH = $out_height, OW = $out_width;
constexpr int KD = $taps_depth, KH = $taps_height, KW = $taps_width;
constexpr int SD = $stride_depth, SH = $stride_height, SW = $stride_width;
constexpr int BD = $begin_depth, BH = $begin_height, BW = $begin_width;
constexpr int TD = $step_depth, TH = $step_height, TW = $step_width;
constexpr int ZD = $spread_depth, ZH = $spread_height, ZW = $spread_width;
constexpr int PIECE = 16 / sizeof(Element);  // elements of 16 bytes
constexpr long long PLANE = (long long)D * H * W, AREA = (long long)OD * OH * OW;

// Of results that are the same beyond a multiple of Z: whether a tap reaches them, and from where.
struct Axis {
    int taps, begin, step, spread;

    __device__ constexpr bool reaches(int phase, int tap) const {
        return (phase + begin + tap * step) % spread == 0;
    }
    __device__ constexpr int from(int phase, int tap) const {
        return (phase + begin + tap * step) / spread;
    }
    __device__ constexpr int first_tap(int phase) const {
        int tap = 0;
        while (tap < taps && !reaches(phase, tap)) ++tap;
        return tap;
    }
    // How many of the phases before this one have a tap.
    __device__ constexpr int reached(int phase) const {
        int found = 0;
        for (int each = 0; each < phase; ++each) found += first_tap(each) < taps;
        return found;
    }
    __device__ constexpr int end(bool last) const {
        int found = last ? -(1 << 30) : 1 << 30;
        for (int phase = 0; phase < spread; ++phase)
            for (int tap = 0; tap < taps; ++tap)
                if (reaches(phase, tap) && (from(phase, tap) > found) == last)
                    found = from(phase, tap);
        return found;
    }
};
constexpr Axis DOWNWARD{KH, BH, TH, ZH}, SIDEWAYS{KW, BW, TW, ZW};
// The pixels of a row that one result of each phase needs, and the place of the first in its piece.
constexpr int LEFT = SIDEWAYS.end(false), REACH = SIDEWAYS.end(true) - LEFT;
constexpr int FIRST = (LEFT % PIECE + PIECE) % PIECE;

// A float32 as tensor cores take it: rounded, where they would cut off.
__device__ __forceinline__ float nearest(float value) {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return __uint_as_float(bits);
}
