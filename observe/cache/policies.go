package cache

import "time"

// This file holds the intervals of this room.

// versionsPoll is how often a waiting decision checks the caches, which have no notification. Source: a tenth of the
// time that an event takes from one process to another.
const versionsPoll = 5 * time.Millisecond

// budgetsWithin is how long a starting worker waits for disruption budgets before it asks whether the target has any,
// and for the answer. Source: a list takes less than a second, and a second of a start is nothing.
const budgetsWithin = 2 * time.Second

// WatchCatchUp is how long after a watch was resumed the cache may still lack events of the interruption. Source: the
// API server sends them at once, so a second is ample, and short for a wait for volumes.
const WatchCatchUp = time.Second

// linkRenewed is the longest gap between two watches that is no interruption: the API server ends each watch after some
// minutes, and the next one continues where it ended. Source: longer than a request, shorter than the first pause of
// client-go after a failure (800 ms).
const linkRenewed = 500 * time.Millisecond

// versionRequest bounds the requests of one check whether an API server was restored to a former state. Source: each of
// them reads one object.
const versionRequest = 5 * time.Second
