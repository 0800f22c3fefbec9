/* Reads a capture with Sysprof's own library: the samples with the names that it finds for their
   addresses, one in a line, and how many frames there are of each type. */
#ifdef NAMES
#include <sysprof.h>
#else
#include <sysprof-capture.h>
#endif
#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	SysprofCaptureReader *r = sysprof_capture_reader_new(argv[1]);
	if (r == NULL)
		return 1;
#ifdef NAMES
	SysprofSymbolResolver *names = sysprof_capture_symbol_resolver_new();
	sysprof_symbol_resolver_load(names, r);
	sysprof_capture_reader_reset(r);
#endif
	SysprofCaptureFrameType type;
	unsigned count[SYSPROF_CAPTURE_FRAME_LAST] = {0};
	while (sysprof_capture_reader_peek_type(r, &type)) {
		const SysprofCaptureSample *s;
		const void *frame = NULL;
		switch (type) {
		case SYSPROF_CAPTURE_FRAME_MAP: frame = sysprof_capture_reader_read_map(r); break;
		case SYSPROF_CAPTURE_FRAME_PROCESS: frame = sysprof_capture_reader_read_process(r); break;
		case SYSPROF_CAPTURE_FRAME_FORK: frame = sysprof_capture_reader_read_fork(r); break;
		case SYSPROF_CAPTURE_FRAME_EXIT: frame = sysprof_capture_reader_read_exit(r); break;
		case SYSPROF_CAPTURE_FRAME_MARK: frame = sysprof_capture_reader_read_mark(r); break;
		case SYSPROF_CAPTURE_FRAME_METADATA: frame = sysprof_capture_reader_read_metadata(r); break;
		case SYSPROF_CAPTURE_FRAME_LOG: frame = sysprof_capture_reader_read_log(r); break;
		case SYSPROF_CAPTURE_FRAME_FILE_CHUNK: frame = sysprof_capture_reader_read_file(r); break;
		case SYSPROF_CAPTURE_FRAME_SAMPLE:
			frame = s = sysprof_capture_reader_read_sample(r);
			if (s == NULL)
				break;
			printf("sample %d %d %d %" PRId64, s->frame.pid, s->tid, s->frame.cpu, s->frame.time);
			for (unsigned i = 0; i < s->n_addrs; i++) {
				printf("\t%" PRIx64, s->addrs[i]);
#ifdef NAMES
				char *name = sysprof_symbol_resolver_resolve_with_context(names, s->frame.time, s->frame.pid,
					SYSPROF_ADDRESS_CONTEXT_NONE, s->addrs[i], NULL);
				printf(" %s", name ? name : "");
				g_free(name);
#endif
			}
			printf("\n");
			break;
		default: break;
		}
		if (frame == NULL) {
			fprintf(stderr, "a frame of type %d is refused\n", type);
			return 1;
		}
		count[type]++;
	}
	for (int i = 0; i < SYSPROF_CAPTURE_FRAME_LAST; i++)
		if (count[i])
			printf("frames %d %u\n", i, count[i]);
	printf("time %" PRId64 " %" PRId64 "\n", sysprof_capture_reader_get_start_time(r),
	       sysprof_capture_reader_get_end_time(r));
	return 0;
}
