package drain

import "time"

// The times of evictions.
const (
	// requestTimeout bounds one eviction. An eviction that the client cuts off may already have used its budget, which
	// then lacks that pod for two minutes although the pod stays. Source: the API server tries an eviction for 10 s when
	// others change the same budget (20 times, half a second apart); webhooks have 10 s by default, and few take a second.
	requestTimeout = 20 * time.Second
	// budgetLockTimeout is how long an eviction waits for others of the same budget before its drain looks at all pods
	// again. Source: together with one request, it is how long a stopping worker waits.
	budgetLockTimeout = 10 * time.Second
	// debouncedFor is how long blockers must stay the same before the drain reports them; debouncedMost is when it reports
	// blockers that keep changing. Source: what a person notices, and how often a person can follow a change.
	debouncedFor  = time.Second
	debouncedMost = 30 * time.Second
	// Up to quickLooks looks at the pods may follow each other shortestWait apart, so that a change has an effect at once.
	// After them, looks are leastPause apart, because a budget, a pod and its volume change a few times each while a pod
	// is removed. Source: what people notice, and how long a look takes.
	shortestWait = 20 * time.Millisecond
	leastPause   = 50 * time.Millisecond
	quickLooks   = 10
	// slowDetach is how long the stage Detach lasts before the status names the volumes that it waits for. It is shorter
	// than in a drain, because the drain has already waited for most of them. Source: what a cloud takes to detach a
	// volume that several pods used.
	slowDetach = 5 * time.Second
	// rewatchAfter is the pause before the next attempt after the API server has ended a watch, so that watches that end
	// at once cause no busy loop. Source: the shortest pause of client-go's own retries; API servers end a watch after
	// half an hour or more.
	rewatchAfter = time.Second
)
