// Package folded writes a profile as folded stacks, the text that flamegraph.pl, inferno and speedscope read:
// a line for each distinct stack, with what its threads are called (Options.NoComms leaves that out), its
// frames from the outermost to the leaf, and the number of samples. In the names of threads, underscores stand for
// spaces, as stackcollapse-perf.pl has it; of two names that would be the same then, both keep their spaces.
//
//	cc1plus;main;toplev::main;compile_file;asm_sysvec_apic_timer_interrupt_[k];irq_exit_rcu_[k] 12
//
// The names of kernel functions end in "_[k]", of generated ones in "_[j]" and of inlined ones in "_[i]",
// as with stackcollapse-perf.pl --all; an inlined function of the kernel has "_[k]". flamegraph.pl and
// inferno colour frames by these endings (--color=java) and do not show them; speedscope shows them.
// Without them, the text would not show where a stack has entered the kernel. Options.Plain leaves them
// out. The format has no specification but these tools.
//
// Threads of the same name share their lines, and so do frames with the same text. The lines are sorted by
// the bytes of their stacks. The format has one weight for each stack: the number of samples, of one event.
// It has no place for lost samples, gaps, source lines or images.
//
// Write leaves the caller's profile as it is, and keeps nothing of it.
package folded
