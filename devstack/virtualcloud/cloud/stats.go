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
	s.Calls, s.RefusalsByCode = maps.Clone(s.Calls), maps.Clone(s.RefusalsByCode)
	kept := c.state.counters
	s.CreatedInstances, s.DeletedInstances, s.VanishedInstances = kept.CreatedInstances, kept.DeletedInstances, kept.VanishedInstances
	s.MaxLiveInstances, s.DuplicateInstances = kept.MaxLiveInstances, kept.DuplicateInstances
	live := c.state.liveRecords(time.Now())
	s.LiveInstances = len(live)
	s.LiveDuplicateUIDs = countDuplicateKeys(live, func(r *instanceRecord) string { return uidKey(r.Tags) })
	s.LiveDuplicateNames = countDuplicateKeys(
		live,
		func(r *instanceRecord) string { return r.Tags.Cluster + "/" + r.Name },
	)
	return s
}

// countDuplicateKeys counts the keys that more than one record has.
func countDuplicateKeys(records []*instanceRecord, key func(*instanceRecord) string) int {
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
	if c.stats.RefusalsByCode == nil {
		c.stats.RefusalsByCode = map[string]int{}
	}
	c.stats.RefusalsByCode[code.String()]++
}
