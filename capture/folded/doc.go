// Package folded writes a profile as folded stacks, the text that flamegraph.pl, inferno and speedscope read:
// a line for each distinct stack, with what its threads are called, its frames from the outermost to the
// leaf, and the number of samples.
//
//	cc1plus;main;toplev::main;compile_file;asm_sysvec_apic_timer_interrupt_[k];irq_exit_rcu_[k] 12
//
// Kernel functions end in "_[k]", generated ones in "_[j]" and inlined ones in "_[i]", as
// stackcollapse-perf.pl --all marks them; an inlined function of the kernel is the kernel's. flamegraph.pl
// and inferno colour frames by these endings (--color=java) and leave them out of what they show; without
// them, nothing tells a reader of text that a stack has entered the kernel. speedscope shows them.
// Options.Plain leaves them out.
//
// Threads of the same name share their lines, and so do frames that read the same. The lines are sorted by
// the bytes of their stacks. The format has one weight for each stack: the number of samples, of one event.
// It has no place for lost samples, gaps, source lines or images.
package folded
