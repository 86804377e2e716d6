// Package ec2test contains a cloud in memory that behaves like EC2, and a driver that behaves like MCM's driver for
// AWS. The driver finds instances by name and cluster tag, sends no client token, and ignores its context. Tests use
// the driver of ec2test instead of real drivers, so that the module mcmdriver does not depend on their modules.
package ec2test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// pageSize is the maximum number of instances in one answer of DescribeInstances. The number is small, so that tests
// need several pages.
const pageSize = 5

// The states of an instance, with EC2's names. A terminated instance remains in the state StateShuttingDown. No Filter
// matches an instance in the state StateShuttingDown.
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
	Placement      string // placement in the create request
	UserData       string
	IsNetworkReady bool

	visibleFrom             time.Time // time after which reads show the instance
	isNetworkSetUpRequested bool      // SetUpNetwork was already called
}

// API contains a driver's requests to EC2. A Cloud implements API in the driver's process; a Client sends requests to
// another process.
type API interface {
	// RunInstances creates an instance.
	RunInstances(Instance) (Instance, error)

	// DescribeInstances returns a page of the instances that match a filter. An empty token requests the first page.
	// Result next is the token of the next page, or empty for the last page.
	DescribeInstances(filter Filter, token string) (page []Instance, next string, err error)

	// TerminateInstance terminates an instance of any cluster. TerminateInstance does nothing if the instance is
	// already terminated or does not exist.
	TerminateInstance(id string) error

	// SetUpNetwork configures the network interface of an instance. The first call for an instance returns false: the
	// interface is not attached yet.
	SetUpNetwork(id string) (ready bool, err error)
}

// Filter matches the running instances that have all values of the Filter. The zero value matches all running
// instances.
type Filter struct {
	TagKeys []string
	ID      string // empty: any ID
	Name    string // value of the tag Name; empty means any name
}

func (f Filter) matchesInstance(i Instance) bool {
	for _, key := range f.TagKeys {
		if _, has := i.Tags[key]; !has {
			return false
		}
	}
	return i.State != StateShuttingDown && (f.ID == "" || f.ID == i.ID) && (f.Name == "" || f.Name == i.Tags["Name"])
}

// Cloud is a region of EC2. Cloud is safe for concurrent use; the zero value has no instances and is ready to use.
type Cloud struct {
	// ReadDelay is the time after the creation of an instance in which no read shows the instance. ReadDelay must be
	// set before the first call.
	ReadDelay time.Duration

	// OnInstanceChange, if set, is called after each creation or termination of an instance. OnInstanceChange must be
	// set before the first call.
	OnInstanceChange func(Instance)

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
	i.State, i.Tags, i.visibleFrom = StateRunning, maps.Clone(i.Tags), time.Now().Add(c.ReadDelay)
	c.instances = append(c.instances, &i)
	made := i
	c.mu.Unlock()
	c.notifyChange(made)
	return made, nil
}

func (c *Cloud) notifyChange(i Instance) {
	if c.OnInstanceChange != nil {
		c.OnInstanceChange(i)
	}
}

// AllInstances returns all instances, including terminated instances, in the order of creation.
func (c *Cloud) AllInstances() []Instance {
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

// DescribeInstances implements API.
func (c *Cloud) DescribeInstances(filter Filter, token string) (page []Instance, next string, err error) {
	all := slices.DeleteFunc(
		c.AllInstances(),
		func(i Instance) bool { return time.Now().Before(i.visibleFrom) || !filter.matchesInstance(i) },
	)
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

// TerminateInstance implements API.
func (c *Cloud) TerminateInstance(id string) error {
	c.changeInstance(id, func(i *Instance) { i.State = StateShuttingDown })
	return nil
}

// SetUpNetwork implements API.
func (c *Cloud) SetUpNetwork(id string) (ready bool, err error) {
	c.changeInstance(id, func(i *Instance) {
		i.IsNetworkReady = i.isNetworkSetUpRequested
		i.isNetworkSetUpRequested, ready = true, i.isNetworkSetUpRequested
	})
	return ready, nil
}

func (c *Cloud) changeInstance(id string, do func(*Instance)) {
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
		c.notifyChange(changed)
	}
}
