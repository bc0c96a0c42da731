#include "session.h"

#define TRY(call)                       \
	do {                            \
		char *failure_ = (call); \
		if (failure_) return failure_; \
	} while (0)
#define CU(name, call) TRY(driver_failed(name, call))

// Eight chains of multiply-adds per thread: no unit waits for a result. The kernel stores
// the sum; otherwise the compiler would remove the computation.
static const char program[] =
	".version 6.0\n.target sm_70\n.address_size 64\n"
	".visible .entry burn(.param .u64 out, .param .u32 rounds)\n{\n"
	".reg .pred %p;\n.reg .u32 %i, %n;\n.reg .u64 %o;\n.reg .f32 %b, %c, %a<8>;\n"
	"ld.param.u64 %o, [out];\ncvta.to.global.u64 %o, %o;\nld.param.u32 %n, [rounds];\n"
	"mov.f32 %b, 0f3F7FBE77;\nmov.f32 %c, 0f3A83126F;\nmov.u32 %i, 0;\n"
	"mov.f32 %a0, 0f3F800000;\nmov.f32 %a1, 0f3F800000;\nmov.f32 %a2, 0f3F800000;\nmov.f32 %a3, 0f3F800000;\n"
	"mov.f32 %a4, 0f3F800000;\nmov.f32 %a5, 0f3F800000;\nmov.f32 %a6, 0f3F800000;\nmov.f32 %a7, 0f3F800000;\n"
	"again:\n"
	"fma.rn.f32 %a0, %a0, %b, %c;\nfma.rn.f32 %a1, %a1, %b, %c;\nfma.rn.f32 %a2, %a2, %b, %c;\nfma.rn.f32 %a3, %a3, %b, %c;\n"
	"fma.rn.f32 %a4, %a4, %b, %c;\nfma.rn.f32 %a5, %a5, %b, %c;\nfma.rn.f32 %a6, %a6, %b, %c;\nfma.rn.f32 %a7, %a7, %b, %c;\n"
	"add.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, %n;\n@%p bra again;\n"
	"add.f32 %a0, %a0, %a1;\nadd.f32 %a2, %a2, %a3;\nadd.f32 %a4, %a4, %a5;\nadd.f32 %a6, %a6, %a7;\n"
	"add.f32 %a0, %a0, %a2;\nadd.f32 %a4, %a4, %a6;\nadd.f32 %a0, %a0, %a4;\n"
	"st.global.f32 [%o], %a0;\nret;\n}\n";

char *burner_open(engine *e, burner *b) {
	void *module;
	CU("cuCtxSetCurrent", cu.current(e->context));
	CU("cuModuleLoadData", cu.load(&module, program));
	CU("cuModuleGetFunction", cu.function(&b->kernel, module, "burn"));
	CU("cuMemAlloc", cu.allocate(&b->sum, 256));
	return NULL;
}

// burner_run runs the kernel once and waits for its end.
char *burner_run(engine *e, session *s, burner *b, unsigned blocks, unsigned threads, unsigned rounds) {
	void *parameters[] = {&b->sum, &rounds};
	CU("cuCtxSetCurrent", cu.current(e->context));
	CU("cuLaunchKernel", cu.launch(b->kernel, blocks, 1, 1, threads, 1, 1, 0, s->stream, parameters, NULL));
	CU("cuStreamSynchronize", cu.wait_stream(s->stream));
	return NULL;
}
