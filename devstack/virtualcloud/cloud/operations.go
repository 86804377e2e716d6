package cloud

import (
	"slices"
	"time"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider"
	"millwright/provider/virtual"
)

// findLiveInstance returns the live instance with the ID, or a NotFound error. The caller holds c.mu.
func (c *Cloud) findLiveInstance(id string, now time.Time) (instanceRecord, error) {
	if r := c.state.records[parseID(id)]; r != nil && r.existsAtTime(now) {
		return *r, nil
	}
	return instanceRecord{}, provider.Errorf(provider.NotFound, "there is no instance %s", id)
}

// initializeInstance records the initialize step of an instance. A second call also succeeds.
func (c *Cloud) initializeInstance(id string) (virtual.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	r, err := c.findLiveInstance(id, now)
	switch {
	case err != nil:
		return virtual.Instance{}, err
	case !r.Spec.NeedsInitialization:
		return virtual.Instance{}, provider.Errorf(
			provider.Unimplemented,
			"instances of class %s are not initialized",
			r.Tags.Class,
		)
	case isPast(r.DeletedAt, now):
		return virtual.Instance{}, provider.Errorf(provider.FailedPrecondition, "instance %s is being terminated", id)
	case r.InitializedAt.IsZero():
		r.InitializedAt = now
		if err := c.commitRecord(entryInitialized, r, nil); err != nil {
			return virtual.Instance{}, err
		}
		c.registry.scheduleSync(r.Number, time.Until(r.BootedAt))
	}
	return r.instanceAtTime(now), nil
}

// terminateInstance accepts the deletion of an instance of the cluster. Repeated calls succeed until the instance is
// gone.
func (c *Cloud) terminateInstance(id, cluster string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	r, err := c.findLiveInstance(id, now)
	switch {
	case err != nil:
		return err
	case r.Tags.Cluster != cluster:
		return provider.Errorf(provider.FailedPrecondition, "instance %s belongs to another cluster", id)
	case isPast(r.DeletedAt, now):
		return nil
	}
	r.DeletedAt = now
	latency := classValueOrDefault(r.Spec.DeleteLatency, c.behaviour.DeleteLatency) + c.behaviour.ExtraLatency.Delete
	r.GoneAt = now.Add(time.Duration(latency))
	if err := c.commitRecord(entryDeleted, r, nil); err != nil {
		return err
	}
	c.logger.Debug("instance terminating", "instance", id, "machine", r.Tags.MachineName)
	c.registry.scheduleSync(r.Number, time.Until(r.GoneAt.Add(time.Duration(c.behaviour.NodeCleanupDelay))))
	return nil
}

// listInstances returns the instances of a cluster and a class, as a stale read. An empty class means all classes.
func (c *Cloud) listInstances(cluster, class string) virtual.ReadAnswer {
	return c.readStaleState(func(w *cloudState, then time.Time) []virtual.Instance {
		return w.visibleInstances(w.recordNumbers, then, func(r *instanceRecord) bool {
			return r.Tags.Cluster == cluster && (class == "" || r.Tags.Class == class)
		})
	})
}

// lookupByUID returns the cluster's instances with a machine's UID, as a stale read. If no instance has the UID,
// lookupByUID returns the instances of the class that have the machine's name and no UID.
func (c *Cloud) lookupByUID(cluster, uid, machine, class string) virtual.ReadAnswer {
	return c.readStaleState(func(w *cloudState, then time.Time) []virtual.Instance {
		tagged := w.visibleInstances(
			w.recordNumbersByUID[uidKey(virtual.Tags{Cluster: cluster, MachineUID: uid})],
			then,
			func(*instanceRecord) bool { return true },
		)
		if len(tagged) > 0 || machine == "" {
			return tagged
		}
		return w.visibleInstances(
			w.recordNumbersByUID[uidKey(virtual.Tags{Cluster: cluster})],
			then,
			func(r *instanceRecord) bool {
				return r.Tags.MachineName == machine && r.Tags.Class == class
			},
		)
	})
}

// lookupByID returns the cluster's instance with the ID, as a stale read.
func (c *Cloud) lookupByID(cluster, id string) virtual.ReadAnswer {
	return c.readStaleState(func(w *cloudState, then time.Time) []virtual.Instance {
		return w.visibleInstances([]int{parseID(id)}, then, func(r *instanceRecord) bool {
			return cluster == "" || r.Tags.Cluster == cluster
		})
	})
}

func (c *Cloud) readStaleState(show func(w *cloudState, then time.Time) []virtual.Instance) virtual.ReadAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.state.lingerTime = time.Duration(c.behaviour.LingerTime)
	return virtual.ReadAnswer{Now: now, Items: show(c.state, now.Add(-time.Duration(c.behaviour.ReadStaleness)))}
}

// cutPage cuts an answer to one page. The page token is an instance number, not a position. If an instance appears or
// disappears between two pages, the next page still skips no other instance.
func (c *Cloud) cutPage(answer virtual.ReadAnswer, from string) virtual.ReadAnswer {
	c.mu.Lock()
	size := c.behaviour.PageSize
	c.mu.Unlock()
	answer.Items = slices.DeleteFunc(answer.Items, func(i virtual.Instance) bool { return parseID(i.ID) < parseID(from) })
	if size > 0 && len(answer.Items) > size {
		answer.Items, answer.NextPage = answer.Items[:size], answer.Items[size].ID
	}
	return answer
}

// MakeInstanceVanish makes a live instance vanish at once.
func (c *Cloud) MakeInstanceVanish(v admin.VanishRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	var found []*instanceRecord
	for _, r := range c.state.liveRecords(now) {
		if (v.ID != "" && r.hasID(v.ID)) || (v.ID == "" && r.Tags.MachineName == v.Machine) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return provider.Errorf(provider.NotFound, "no live instance fits")
	case 1:
	default:
		return provider.Errorf(provider.OutOfRange, "%d instances fit; name one by its id", len(found))
	}
	r := *found[0]
	r.GoneAt, r.Vanished, r.NodeRemains = now, true, !v.DeleteNode
	if err := c.commitRecord(entryVanished, r, nil); err != nil {
		return err
	}
	c.registry.scheduleSync(r.Number, 0)
	return nil
}

// Instances returns every live instance, sorted by number.
func (c *Cloud) Instances() []admin.Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	instances := []admin.Instance{}
	for _, r := range c.state.liveRecords(now) {
		instances = append(instances, r.adminInstance(now))
	}
	return instances
}

// UserData returns the user data of an instance.
func (c *Cloud) UserData(id string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, err := c.findLiveInstance(id, time.Now())
	if err != nil {
		return nil, err
	}
	return c.state.userData[r.Number], nil
}

// Reset restores the cloud's initial state. The Nodes of the ended instances are deleted after DefaultNodeCleanupDelay.
func (c *Cloud) Reset() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, r := range c.state.liveRecords(now) {
		ended := *r
		ended.DeletedAt, ended.GoneAt = now, now
		if err := c.commitRecord(entryDeleted, ended, nil); err != nil {
			return err
		}
		c.registry.scheduleSync(ended.Number, time.Duration(admin.DefaultNodeCleanupDelay))
	}
	c.resetCount++
	c.callGate = callGate{}
	c.state.counters = savedCounters{}
	c.stats = admin.Stats{PendingCreates: c.stats.PendingCreates}
	if err := c.setBehaviour(admin.DefaultBehaviour()); err != nil {
		return err
	}
	return c.store.compactLog(c.state, now) // compactLog writes the reset counters to disk
}
