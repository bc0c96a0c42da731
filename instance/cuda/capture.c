#define _GNU_SOURCE
#include "session.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                       \
	do {                            \
		char *failure_ = (call); \
		if (failure_) return failure_; \
	} while (0)
#define CU(name, call) TRY(driver_failed(name, call))

// copy is the driver's CUDA_MEMCPY3D.
typedef struct {
	size_t x, y, z, lod;
	int kind;
	const void *host;
	address device;
	void *array, *reserved;
	size_t pitch, height;
} place;
typedef struct {
	place from, to;
	size_t width, height, depth;
} copy;

// Kinds of nodes and of memory.
enum { node_copy = 1, node_host = 3, memory_host = 1, memory_device = 2, memory_unified = 4, attribute_kind = 2 };

// kind_of is the kind of memory of a copy's source or destination, 0 for memory that the driver
// does not know.
static int kind_of(const place *p) {
	int kind = 0;
	address at = p->kind == memory_host ? (address)(uintptr_t)p->host : p->device;
	if (p->kind == memory_device) return memory_device;
	return cu.pointer(&kind, attribute_kind, at) ? 0 : kind;
}

// keep makes a copy from the host's memory independent of it: ONNX Runtime frees such memory
// after the run, but a graph reads it in every run.
static char *keep(session *s, void *node) {
	copy c;
	memset(&c, 0, sizeof c);
	CU("cuGraphMemcpyNodeGetParams", cu.copy_of(node, &c));
	if (kind_of(&c.to) != memory_device) return strdup("a node copies to the host");
	int from = kind_of(&c.from);
	if (from == memory_device) return NULL;
	if (from != memory_host) return strdup("a node copies from the host's unpinned memory");
	if (c.height > 1 || c.depth > 1) return strdup("a node copies a block from the host");
	void *kept;
	const void *source = c.from.kind == memory_host ? c.from.host : (const void *)(uintptr_t)c.from.device;
	TRY(host_reserve(s, c.width, &kept)); // It lives as long as the process.
	memcpy(kept, (const char *)source + c.from.x, c.width);
	memset(&c.from, 0, sizeof c.from);
	c.from.kind = memory_host;
	c.from.host = kept;
	CU("cuGraphMemcpyNodeSetParams", cu.set_copy(node, &c));
	return NULL;
}

// check makes a graph fit for many launches, or says why it is not. It removes the host's
// functions at its end, with which ONNX Runtime frees memory of the one run.
static char *check(session *s, void *graph, size_t *count) {
	*count = 0;
	CU("cuGraphGetNodes", cu.nodes(graph, NULL, count));
	void **all = calloc(*count + 1, sizeof *all);
	char *failure = driver_failed("cuGraphGetNodes", cu.nodes(graph, all, count));
	for (size_t i = 0; i < *count && !failure; i++) {
		int type = 0;
		failure = driver_failed("cuGraphNodeGetType", cu.node_type(all[i], &type));
		if (!failure && type == node_copy) failure = keep(s, all[i]);
		if (!failure && type == node_host) {
			size_t after = 0;
			failure = driver_failed("cuGraphNodeGetDependentNodes", cu.dependents(all[i], NULL, &after));
			if (!failure && after) failure = strdup("a node runs a function on the host");
			if (!failure) failure = driver_failed("cuGraphDestroyNode", cu.destroy_node(all[i]));
		}
	}
	free(all);
	return failure;
}

// batch_capture records one run of the model as a graph. Nothing may be captured that needs an
// answer from the host in between: the driver refuses to wait for a stream that is captured
// (mode 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).
char *batch_capture(session *s, batch *b, size_t *nodes) {
	void *graph = NULL;
	CU("cuCtxSetCurrent", cu.current(s->context));
	CU("cuStreamBeginCapture", cu.begin_capture(s->stream, 1));
	char *failure = batch_compute(s, b);
	char *ended = driver_failed("cuStreamEndCapture", cu.end_capture(s->stream, &graph));
	if (failure) {
		free(ended);
	} else {
		failure = ended;
	}
	if (!failure && !graph) failure = strdup("cuStreamEndCapture: no graph");
	if (!failure) failure = check(s, graph, nodes);
	if (!failure) failure = driver_failed("cuGraphInstantiateWithFlags", cu.instantiate(&b->exec, graph, 0));
	if (graph) cu.destroy_graph(graph);
	return failure;
}
