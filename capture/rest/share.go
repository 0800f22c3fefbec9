package rest

// A Share bounds the time that reading takes to a part of all time, one in Part. What was not used is kept
// for Slack, in ns.
type Share struct {
	Part, Slack uint64
	until       uint64
}

// IsSpent reports whether there is nothing left at a time.
func (s *Share) IsSpent(now uint64) bool { return s.until > now }

// Until is up to when there is nothing left.
func (s *Share) Until() uint64 { return s.until }

// Spend takes so many ns from what is left at a time.
func (s *Share) Spend(now, ns uint64) { s.until = max(s.until, now-min(now, s.Slack)) + s.Part*ns }
