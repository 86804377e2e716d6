// Package ec2test has a cloud in memory that behaves like EC2, and a driver that behaves like MCM's driver for AWS: it
// finds instances by name and cluster tag, sends no client token, and ignores its context. Tests use it in place of the
// real drivers, so that this module does not need theirs.
package ec2test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// pageSize is the maximum number of instances in one answer of Describe. It is small, so that tests get several pages.
const pageSize = 5

// The states of an instance, with EC2's names. A terminated instance keeps the state StateShuttingDown, and no filter
// matches it.
const (
	StateRunning      = "running"
	StateShuttingDown = "shutting-down"
)

// Instance is an instance of the cloud.
type Instance struct {
	ID             string
	PrivateDNSName string
	Tags           map[string]string
	State          string
	Placement      string // as in the request
	UserData       string
	NetworkReady   bool

	shownAt time.Time // time from which reads show it
	asked   bool      // SetUpNetwork was called before
}

// API has the requests of a driver to EC2: to a Cloud in its own process, or through a Client.
type API interface {
	// RunInstances makes an instance.
	RunInstances(Instance) (Instance, error)

	// Describe returns a page of the instances that match a filter. An empty token asks for the first page. Next is the
	// token of the next page; empty if this page is the last.
	Describe(filter Filter, token string) (page []Instance, next string, err error)

	// Terminate terminates an instance of any cluster. It may be called again, and for an instance that never existed.
	Terminate(id string) error

	// SetUpNetwork changes the network interface of an instance. The first call returns false: the interface is not
	// attached yet.
	SetUpNetwork(id string) (ready bool, err error)
}

// Filter matches the instances that are not being terminated and have all of its values. The zero value matches all
// instances that are not being terminated.
type Filter struct {
	TagKeys []string
	ID      string // empty: any
	Name    string // value of the tag Name; empty: any
}

func (f Filter) matches(i Instance) bool {
	for _, key := range f.TagKeys {
		if _, has := i.Tags[key]; !has {
			return false
		}
	}
	return i.State != StateShuttingDown && (f.ID == "" || f.ID == i.ID) && (f.Name == "" || f.Name == i.Tags["Name"])
}

// Cloud is a region of EC2. It is safe for concurrent use; the zero value is empty and valid.
type Cloud struct {
	// Consistency is how long after its creation no read shows an instance. Change it before the first call only.
	Consistency time.Duration

	// Changed is called with each instance that was made or is terminated; nil: it is not called. Set it before the
	// first call only.
	Changed func(Instance)

	mu        sync.Mutex
	instances []*Instance
}

var _ API = (*Cloud)(nil)

// RunInstances implements API.
func (c *Cloud) RunInstances(i Instance) (Instance, error) {
	c.mu.Lock()
	n := len(c.instances) + 1
	i.ID = fmt.Sprintf("i-%08x", n)
	i.PrivateDNSName = fmt.Sprintf("ip-10-250-%d-%d.eu-west-1.compute.internal", n/256, n%256)
	i.State, i.Tags, i.shownAt = StateRunning, maps.Clone(i.Tags), time.Now().Add(c.Consistency)
	c.instances = append(c.instances, &i)
	made := i
	c.mu.Unlock()
	c.tell(made)
	return made, nil
}

func (c *Cloud) tell(i Instance) {
	if c.Changed != nil {
		c.Changed(i)
	}
}

// All returns all instances, also terminated ones, in the order in which they were made.
func (c *Cloud) All() []Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]Instance, 0, len(c.instances))
	for _, i := range c.instances {
		shown := *i
		shown.Tags = maps.Clone(i.Tags)
		all = append(all, shown)
	}
	return all
}

// Describe implements API.
func (c *Cloud) Describe(filter Filter, token string) (page []Instance, next string, err error) {
	all := slices.DeleteFunc(c.All(), func(i Instance) bool { return time.Now().Before(i.shownAt) || !filter.matches(i) })
	begin, _ := slices.BinarySearchFunc(all, token, func(i Instance, token string) int {
		if i.ID <= token {
			return -1
		}
		return 1
	})
	end := min(begin+pageSize, len(all))
	if end < len(all) {
		next = all[end-1].ID
	}
	return all[begin:end], next, nil
}

// Terminate implements API.
func (c *Cloud) Terminate(id string) error {
	c.change(id, func(i *Instance) { i.State = StateShuttingDown })
	return nil
}

// SetUpNetwork implements API.
func (c *Cloud) SetUpNetwork(id string) (ready bool, err error) {
	c.change(id, func(i *Instance) {
		i.NetworkReady = i.asked
		i.asked, ready = true, i.asked
	})
	return ready, nil
}

func (c *Cloud) change(id string, do func(*Instance)) {
	c.mu.Lock()
	at := slices.IndexFunc(c.instances, func(i *Instance) bool { return i.ID == id })
	if at < 0 {
		c.mu.Unlock()
		return
	}
	do(c.instances[at])
	changed := *c.instances[at]
	c.mu.Unlock()
	if changed.State == StateShuttingDown {
		c.tell(changed)
	}
}
