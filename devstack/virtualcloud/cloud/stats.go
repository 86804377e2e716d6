package cloud

import (
	"maps"
	"time"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider"
)

// Stats returns the counters.
func (c *Cloud) Stats() admin.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Calls, s.Errors = maps.Clone(s.Calls), maps.Clone(s.Errors)
	kept := c.state.counters
	s.CreatedInstances, s.DeletedInstances, s.VanishedInstances = kept.CreatedInstances, kept.DeletedInstances, kept.VanishedInstances
	s.MaxLiveInstances, s.DuplicateInstances = kept.MaxLiveInstances, kept.DuplicateInstances
	live := c.state.liveRecords(time.Now())
	s.LiveInstances = len(live)
	s.LiveDuplicateUIDs = countDuplicates(live, func(r *instanceRecord) string { return uidKey(r.Tags) })
	s.LiveDuplicateNames = countDuplicates(live, func(r *instanceRecord) string { return r.Tags.Cluster + "/" + r.Name })
	return s
}

// countDuplicates counts the keys that more than one record has.
func countDuplicates(records []*instanceRecord, key func(*instanceRecord) string) int {
	seen := map[string]int{}
	count := 0
	for _, r := range records {
		if seen[key(r)]++; seen[key(r)] == 2 {
			count++
		}
	}
	return count
}

func (c *Cloud) countRefusal(code provider.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stats.Errors == nil {
		c.stats.Errors = map[string]int{}
	}
	c.stats.Errors[code.String()]++
}
