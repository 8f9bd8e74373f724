// Rotary embedding in one pass: both elements of a pair are read once and written once.
// /// kopt
// requires = $requires
// $knobs
$plan
// ///
$pieces

$stored

constexpr bool INTERLEAVED = $interleaved;  // pairs are neighbours; else the halves of a row
constexpr int PAIRS = $pairs;
constexpr int EACH = INTERLEAVED ? PIECE / 2 : PIECE;  // pairs that a thread turns
constexpr int SHARES = PAIRS / EACH;                   // threads of a row
constexpr int ROW = 2 * PAIRS / PIECE;                 // pieces of it

template <int BYTES> struct Access {};
template <> struct Access<16> { using Type = uint4; };
template <> struct Access<8> { using Type = uint2; };
template <> struct Access<4> { using Type = unsigned; };
template <> struct Access<2> { using Type = unsigned short; };

// A table's elements STEP * pair + START of EACH pairs, in one access where they lie together.
template <int WIDTH, int STEP, int START>
__device__ __forceinline__ void read(const Element *row, int pair, float (&factors)[EACH]) {
    constexpr int SPAN = STEP > 0 ? STEP * EACH : 1, OFFSET = STEP > 0 ? START % STEP : 0;
    constexpr bool ALIGNED = WIDTH % SPAN == 0 && (START - OFFSET) % SPAN == 0;
    if constexpr (STEP > 0 && ALIGNED && SPAN * sizeof(Element) <= sizeof(Memory)) {
        using Window = typename Access<SPAN * sizeof(Element)>::Type;
        const Element *from = row + STEP * pair + START - OFFSET;
        const Window window = __ldg(reinterpret_cast<const Window *>(from));
        const Element *elements = reinterpret_cast<const Element *>(&window);
#pragma unroll
        for (int i = 0; i < EACH; ++i) factors[i] = wide(elements[STEP * i + OFFSET]);
    } else {
#pragma unroll
        for (int i = 0; i < EACH; ++i) factors[i] = wide(__ldg(row + STEP * (pair + i) + START));
    }
}

// For the first of a pair and for the second: the factors of its own cosine and its partner's
// sine, each followed by STEP and START of their places.
template <int COSINES, int SINES, int... PLACES>
__device__ __forceinline__ void turn(const Memory *x, const Element *cosine, const Element *sine,
                                     Memory *out, int pair) {
    constexpr int A[] = {PLACES...};
    constexpr int HALF = INTERLEAVED ? 0 : PAIRS / PIECE;
    const int at = INTERLEAVED ? pair / EACH : pair / PIECE;
    Values a = widened(__ldcs(x + at)), b = a;
    if (!INTERLEAVED) b = widened(__ldcs(x + HALF + at));
    float c[2][EACH], s[2][EACH];
    read<COSINES, A[1], A[2]>(cosine, pair, c[0]);
    read<SINES, A[4], A[5]>(sine, pair, s[0]);
    read<COSINES, A[7], A[8]>(cosine, pair, c[1]);
    read<SINES, A[10], A[11]>(sine, pair, s[1]);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        float &first = a.at[INTERLEAVED ? 2 * i : i];
        float &second = INTERLEAVED ? a.at[2 * i + 1] : b.at[i];
        const float turned = A[0] * first * c[0][i] + A[3] * second * s[0][i];
        second = A[6] * second * c[1][i] + A[9] * first * s[1][i];
        first = turned;
    }
    store(out + at, a);
    if (!INTERLEAVED) store(out + HALF + at, b);
}
$kernels
