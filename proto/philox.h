/* philox.h - Random123's Philox, without its wrappers of SSE: nothing here uses them, and their
 * header, that of all intrinsics, is 0.4 to 0.8 s of each compilation. */
#ifndef EMBD_PROTO_PHILOX_H
#define EMBD_PROTO_PHILOX_H

#define R123_USE_SSE 0
#include <Random123/philox.h>

#endif
