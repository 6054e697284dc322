/* Viscous Burgers' equation, u_t + (u^2/2)_x = nu u_xx on a ring: reads the amplitudes of the first
   sines of u(0) from a .npy file, writes u(T) at every fourth cell to another. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELLS 128

int main(int argc, char **argv) {
    if (argc != 3) { fprintf(stderr, "usage: burgers input.npy output.npy\n"); return 2; }
    FILE *in = fopen(argv[1], "rb");
    unsigned char head[10];
    if (!in || fread(head, 1, 10, in) != 10) { fprintf(stderr, "no input\n"); return 2; }
    fseek(in, 10 + head[8] + 256 * head[9], SEEK_SET);
    double amplitude[64];
    int count = (int)fread(amplitude, sizeof(double), 64, in);
    fclose(in);

    const double dx = 1.0 / CELLS, nu = 0.004, end = 0.25, dt = 5e-4;
    double u[CELLS], next[CELLS];
    for (int i = 0; i < CELLS; i++) {
        u[i] = 0;
        for (int k = 0; k < count; k++)
            u[i] += 2 * (amplitude[k] - 0.5) / (1 + k) * sin(2 * M_PI * (k + 1) * (i + 0.5) * dx);
    }
    for (double t = 0; t < end - dt / 2; t += dt) {
        for (int i = 0; i < CELLS; i++) {
            double l = u[(i + CELLS - 1) % CELLS], r = u[(i + 1) % CELLS];
            /* Lax-Friedrichs flux, with the speed of this pair of cells */
            double right = 0.25 * (u[i] * u[i] + r * r) - 0.5 * fmax(fabs(u[i]), fabs(r)) * (r - u[i]);
            double left = 0.25 * (l * l + u[i] * u[i]) - 0.5 * fmax(fabs(l), fabs(u[i])) * (u[i] - l);
            next[i] = u[i] - dt / dx * (right - left) + dt * nu / (dx * dx) * (l - 2 * u[i] + r);
        }
        memcpy(u, next, sizeof u);
    }

    char text[118];
    int size = snprintf(text, sizeof text,
        "{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }", CELLS / 4);
    memset(text + size, ' ', sizeof text - size);
    text[sizeof text - 1] = '\n';
    FILE *out = fopen(argv[2], "wb");
    if (!out) { fprintf(stderr, "cannot write\n"); return 2; }
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, out);
    fwrite(text, 1, sizeof text, out);
    for (int i = 0; i < CELLS; i += 4) fwrite(&u[i], sizeof(double), 1, out);
    return fclose(out) ? 2 : 0;
}
