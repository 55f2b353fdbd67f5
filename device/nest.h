/* What kernels ask of CUDA's device runtime, with which they launch kernels themselves: between the
 * functions that programs are linked with (device/driver/link_nest.c), which compiled kernels hand
 * on as `runtime` (device/abi.h), and the driver that answers (device/driver/nest.c). */
#ifndef TALLY_DEVICE_NEST_H
#define TALLY_DEVICE_NEST_H

/* .func (.param .b64 answer) (.param .b32 question, .param .b64 x 7) */
#define TL_NEST_FUNCTION "__tally_device_runtime"

/* Where an answer is an error it is one of cudart's (enum cudaError).  They are macros because
 * link_nest.c writes them into PTX. */
#define TL_NEST_BUFFER 1 /* function, grid x | y << 32, grid z | shared << 32, block the same: */
                         /* where its parameters go; 0: the error is the thread's last one */
#define TL_NEST_LAUNCH 2 /* that place, stream: an error */
#define TL_NEST_STREAM 3 /* a new stream; 0: there is no memory */
#define TL_NEST_STREAM_END 4  /* stream: an error */
#define TL_NEST_EVENT 5       /* a new event; 0: there is no memory */
#define TL_NEST_EVENT_END 6   /* event: an error */
#define TL_NEST_RECORD 7      /* event, stream: an error */
#define TL_NEST_WAIT 8        /* stream, event: an error */
#define TL_NEST_COPY 9        /* to, its pitch, from, its pitch, width, height, stream: an error */
#define TL_NEST_FILL 10       /* to, its pitch, value, width, height, stream: an error */
#define TL_NEST_LAST_ERROR 11 /* 1 to forget it, 0 to leave it: the thread's last error */
#define TL_NEST_ATTRIBUTE 12  /* attribute, device: its value, with an error in the upper half */
#define TL_NEST_DEVICE 13     /* the device's number */
#define TL_NEST_DEVICES 14    /* how many there are */
#define TL_NEST_OCCUPANCY 15  /* function, threads, dynamic shared memory: as for attributes */
#define TL_NEST_GRAPH 16      /* graph, stream: an error */
#define TL_NEST_GRAPH_SELF 17 /* the graph that the kernel is in if kernels may launch it, or 0 */

/* Streams that every grid has. */
#define TL_NEST_STREAM_TAIL 3
#define TL_NEST_STREAM_FORGET 4
/* Those of graphs have a number above this: how the graph is launched. */
#define TL_NEST_STREAM_GRAPH_SHIFT 56

#endif
