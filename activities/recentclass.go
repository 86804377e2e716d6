package activities

import (
	"sync"
	"time"

	"millwright/provider"
)

// recentFor is how long a class that was read may serve further looks at instances that end, instead of two reads for each of them.
// Source: the longest time between two looks.
const recentFor = terminatingMost

// recentClasses are those with which a cloud was asked a moment ago, Secrets included. They never leave the process. The zero
// value is ready, and safe for concurrent use.
type recentClasses struct {
	mu   sync.Mutex
	read map[string]recentClass // by namespace and name
}

type recentClass struct {
	provider.Class
	at time.Time
}

// keep remembers a class that was just read, and with which the cloud did what it was asked.
func (r *recentClasses) keep(class provider.Class, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read == nil {
		r.read = map[string]recentClass{}
	}
	for name, other := range r.read { // credentials stay no longer than they are of use
		if at.Sub(other.at) > recentFor {
			delete(r.read, name)
		}
	}
	r.read[class.Namespace+"/"+class.Name] = recentClass{class, at}
}

// find returns a class that was read recently.
func (r *recentClasses) find(namespace, name string, now time.Time) (provider.Class, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	class, found := r.read[namespace+"/"+name]
	return class.Class, found && now.Sub(class.at) <= recentFor
}

// forget drops a class with which a cloud did not do what it was asked: it may have changed.
func (r *recentClasses) forget(namespace, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.read, namespace+"/"+name)
}
