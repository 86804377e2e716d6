package drain

// lane is a group of pods with volumes that go one after the other, the next only when the volumes of the one before
// have arrived elsewhere. Source: MCM evicts pods with volumes serially, so that a node which loses dozens of volumes at
// once does not exceed what its cloud detaches and attaches in time.
type lane struct {
	busy  bool
	cause cause // the volume that it waits for; zero when it waits for none
}

// isBusy reports whether the next pod has to wait. A pod that needs no lane never has to.
func (l *lane) isBusy() bool { return l != nil && l.busy }

// enter keeps the others of a lane waiting.
func (l *lane) enter() {
	if l != nil {
		l.busy = true
	}
}

// lanes finds the lane of a pod. All pods share one, unless lanes are parallel: then those share one that have a
// StatefulSet, a budget or a volume in common, also by way of others (P6).
type lanes struct {
	parallel bool
	parents  map[string]string // a forest of what is shared: each tree is one lane
	byRoot   map[string]*lane
}

func newLanes(views []*view, departed []awaited, parallel bool) *lanes {
	l := &lanes{parallel: parallel, parents: map[string]string{}, byRoot: map[string]*lane{}}
	for _, v := range views {
		l.join(v.pod)
	}
	for _, d := range departed {
		l.join(d.Pod)
	}
	for _, v := range views {
		if v.pod.leaving() {
			l.of(v.pod).enter()
		}
	}
	for _, d := range departed {
		own := l.lane(d.Pod)
		own.enter()
		if own.cause.name == "" || d.volume < own.cause.name {
			own.cause = d.cause()
		}
	}
	return l
}

// of returns the lane of a pod, nil when it needs none: it has no volumes, or finished by itself and holds none.
func (l *lanes) of(p Pod) *lane {
	if len(p.Volumes) == 0 || p.Finished && !p.leaving() {
		return nil
	}
	return l.lane(p)
}

func (l *lanes) lane(p Pod) *lane {
	root := l.root(l.shares(p)[0])
	if l.byRoot[root] == nil {
		l.byRoot[root] = &lane{}
	}
	return l.byRoot[root]
}

// shares are the things that keep a pod with volumes in a lane with others.
func (l *lanes) shares(p Pod) []string {
	if !l.parallel {
		return []string{""}
	}
	var keys []string
	for _, name := range p.Volumes {
		keys = append(keys, "volume "+name)
	}
	for _, key := range p.Budgets {
		keys = append(keys, "budget "+key)
	}
	if p.StatefulSet != "" {
		keys = append(keys, "set "+p.StatefulSet)
	}
	return keys
}

// join makes one lane of all that a pod shares.
func (l *lanes) join(p Pod) {
	if len(p.Volumes) == 0 {
		return
	}
	keys := l.shares(p)
	for _, key := range keys[1:] {
		if a, b := l.root(keys[0]), l.root(key); a != b {
			l.parents[b] = a
		}
	}
}

func (l *lanes) root(key string) string {
	for {
		parent, ok := l.parents[key]
		if !ok {
			return key
		}
		if above, ok := l.parents[parent]; ok {
			l.parents[key] = above // shorter next time
		}
		key = parent
	}
}
