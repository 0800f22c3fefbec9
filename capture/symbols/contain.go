package symbols

// Contain does what reads one file, which may be anybody's. Whatever fault the file leads to costs that file and a
// note, also one of this program. what says in words what is missing then.
func (s *Symbolizer) Contain(path, what string, do func()) {
	defer func() {
		if fault := recover(); fault != nil {
			s.problem("%s: %s are missing: it led to a fault of unspool, which is worth a report: %v", path, what, fault)
		}
	}()
	do()
}
