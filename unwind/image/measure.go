package image

// Rules returns how many rules the images hold, one for each PC that was looked up, and how many
// bytes of memory these take.
func (s *Store) Rules() (n, size int) {
	add := func(im *Image) {
		n += im.rules.Len()
		size += im.rules.Size() + im.ranges.Size()
	}
	for _, im := range s.byKey {
		add(im)
	}
	for _, im := range s.byInode {
		add(im)
	}
	return n, size
}
