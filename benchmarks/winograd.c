/* Periodic 3x3 convolutions by Winograd's minimal filtering F(4x4, 3x3): a quarter of the products.
 *
 * An image is (H, W, C) floats, channels innermost, H and W multiples of 4 with an even number of
 * 4x4 tiles of 8. A tile of 4x4 results needs a 6x6 patch d; with the constant matrices A, B, G,
 *     result = A' [ (G w G') . (B' d B) ] A,
 * where the product in brackets is, over channels, one small matrix product for each of the 36
 * entries. Everything that belongs to one image fits the second-level cache.
 *
 * The gradient of the input is the same convolution with turned, transposed weights; that of the
 * weights is the transpose of the formula: dw = G' [ sum over tiles (B' d B) (A r A') ] G.
 * Python applies G on either side.
 */
#include <stddef.h>

#define LANES 16
#define VECTORS (C / LANES)
#define ENTRIES 36
#define ROWS 8 /* of a block of the matrix product: ROWS * VECTORS accumulators */

/* GCC and clang map these to whatever the processor has. */
typedef float vec __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float))));

static inline void into_patch(vec *out, const vec *d, size_t step)
{
    vec d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step], d5 = d[5 * step];
    vec even = d4 - 4 * d2, odd = d3 - 4 * d1, far = d4 - d2, skew = 2 * (d3 - d1);
    out[0] = 4 * d0 - 5 * d2 + d4;
    out[1] = even + odd;
    out[2] = even - odd;
    out[3] = far + skew;
    out[4] = far - skew;
    out[5] = 4 * d1 - 5 * d3 + d5;
}

static inline void into_result(vec *out, const vec *r, size_t step)
{
    vec r0 = r[0], r1 = r[step], r2 = r[2 * step], r3 = r[3 * step];
    vec even = r0 + r2, odd = r1 + r3, even2 = r0 + 4 * r2, odd2 = 2 * r1 + 8 * r3;
    out[0] = r0;
    out[1] = even + odd;
    out[2] = even - odd;
    out[3] = even2 + odd2;
    out[4] = even2 - odd2;
    out[5] = r3;
}

static inline void out_of_result(vec *out, const vec *m, size_t step)
{
    vec m1 = m[step], m2 = m[2 * step], m3 = m[3 * step], m4 = m[4 * step];
    vec sum = m1 + m2, difference = m1 - m2, sum2 = m3 + m4, difference2 = m3 - m4;
    out[0] = m[0] + sum + sum2;
    out[1] = difference + 2 * difference2;
    out[2] = sum + 4 * sum2;
    out[3] = difference + 8 * difference2 + m[5 * step];
}

/* B' d B of every patch: (36, tiles, C). */
static void patches(const float *image, int H, int W, float *V)
{
    int tiles = (H / 4) * (W / 4), tile = 0;
    for (int i = 0; i < H; i += 4)
        for (int j = 0; j < W; j += 4, tile++)
            for (int v = 0; v < VECTORS; v++) {
                vec d[36], half[36], all[6];
                for (int a = 0; a < 6; a++)
                    for (int b = 0; b < 6; b++) {
                        size_t row = (i + a - 1 + H) % H, column = (j + b - 1 + W) % W;
                        d[6 * a + b] = *(const vec *)(image + (row * W + column) * C + v * LANES);
                    }
                for (int b = 0; b < 6; b++)
                    into_patch(half + 6 * b, d + b, 6);
                for (int a = 0; a < 6; a++) {
                    into_patch(all, half + a, 6);
                    for (int b = 0; b < 6; b++)
                        *(vec *)(V + ((size_t)(6 * a + b) * tiles + tile) * C + v * LANES) = all[b];
                }
            }
}

/* A r A' of every tile: (36, tiles, C). */
static void results(const float *image, int H, int W, float *E)
{
    int tiles = (H / 4) * (W / 4), tile = 0;
    for (int i = 0; i < H; i += 4)
        for (int j = 0; j < W; j += 4, tile++)
            for (int v = 0; v < VECTORS; v++) {
                vec r[16], half[24], all[6];
                for (int a = 0; a < 4; a++)
                    for (int b = 0; b < 4; b++)
                        r[4 * a + b] =
                            *(const vec *)(image + ((size_t)(i + a) * W + j + b) * C + v * LANES);
                for (int b = 0; b < 4; b++)
                    into_result(half + 6 * b, r + b, 4);
                for (int a = 0; a < 6; a++) {
                    into_result(all, half + a, 6);
                    for (int b = 0; b < 6; b++)
                        *(vec *)(E + ((size_t)(6 * a + b) * tiles + tile) * C + v * LANES) = all[b];
                }
            }
}

/* ROWS rows of P (+)= sum over k of a[i, k] B[k, :], where a[i, k] = a[i * to_row + k * to_next]. */
static inline void block(const float *a, size_t to_row, size_t to_next, int count, const float *B,
                         float *P, int add)
{
    vec sum[ROWS][VECTORS];
    for (int i = 0; i < ROWS; i++)
        for (int v = 0; v < VECTORS; v++)
            sum[i][v] = add ? *(vec *)(P + i * C + v * LANES) : (vec){0};
    for (int k = 0; k < count; k++)
        for (int i = 0; i < ROWS; i++) {
            float factor = a[i * to_row + k * to_next];
            for (int v = 0; v < VECTORS; v++)
                sum[i][v] += factor * *(const vec *)(B + (size_t)k * C + v * LANES);
        }
    for (int i = 0; i < ROWS; i++)
        for (int v = 0; v < VECTORS; v++)
            *(vec *)(P + i * C + v * LANES) = sum[i][v];
}

/* out = the larger of z and slope * z, where z = images convolved with U = G w G', (36, in, out),
 * plus bias, plus beside, which has the shape of the images or is NULL; with slope 1, out = z.
 * work: 2 * 36 * tiles * C floats.
 */
void convolve(const float *images, const float *U, const float *bias, const float *beside,
              float slope, float *out, int count, int H, int W, float *work)
{
    int tiles = (H / 4) * (W / 4);
    size_t entry = (size_t)tiles * C, size = (size_t)H * W * C;
    float *V = work, *M = work + ENTRIES * entry;
    for (int n = 0; n < count; n++) {
        float *z = out + n * size;
        patches(images + n * size, H, W, V);
        for (int e = 0; e < ENTRIES; e++)
            for (int t = 0; t < tiles; t += ROWS)
                block(V + e * entry + t * C, C, 1, C, U + (size_t)e * C * C, M + e * entry + t * C, 0);
        int tile = 0;
        for (int i = 0; i < H; i += 4)
            for (int j = 0; j < W; j += 4, tile++)
                for (int v = 0; v < VECTORS; v++) {
                    vec m[36], half[24], all[4], b = *(const vec *)(bias + v * LANES);
                    for (int e = 0; e < ENTRIES; e++)
                        m[e] = *(vec *)(M + e * entry + tile * C + v * LANES);
                    for (int c = 0; c < 6; c++)
                        out_of_result(half + 4 * c, m + c, 6);
                    for (int r = 0; r < 4; r++) {
                        out_of_result(all, half + r, 4);
                        for (int c = 0; c < 4; c++)
                            *(vec *)(z + ((size_t)(i + r) * W + j + c) * C + v * LANES) = all[c] + b;
                    }
                }
        for (size_t k = 0; beside && k < size; k++)
            z[k] += beside[n * size + k];
        for (size_t k = 0; k < size; k++)
            z[k] = z[k] > 0 ? z[k] : slope * z[k];
    }
}

/* M = sum over images and tiles of (B' d B)' (A r A'), (36, in, out); work as above. */
void correlate(const float *images, const float *gradients, float *M, int count, int H, int W,
               float *work)
{
    int tiles = (H / 4) * (W / 4);
    size_t entry = (size_t)tiles * C, size = (size_t)H * W * C;
    float *V = work, *E = work + ENTRIES * entry;
    for (int n = 0; n < count; n++) {
        patches(images + n * size, H, W, V);
        results(gradients + n * size, H, W, E);
        for (int e = 0; e < ENTRIES; e++)
            for (int c = 0; c < C; c += ROWS)
                block(V + e * entry + c, 1, C, tiles, E + e * entry, M + ((size_t)e * C + c) * C, n > 0);
    }
}
