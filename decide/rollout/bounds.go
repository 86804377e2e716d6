package rollout

import "math"

// of resolves a bound. Source of the rounding: MCM, surge up and unavailable down.
func (b Bound) of(total int, up bool) int {
	value := max(b.Value, 0)
	if !b.Percent {
		return value
	}
	n := float64(value) * float64(total) / 100
	if up {
		return int(math.Ceil(n))
	}
	return int(math.Floor(n))
}

// Bounds returns how many machines there may be above Replicas, and how many of Replicas may be unavailable. Where both are
// zero nothing could ever move, and one may be unavailable. Recreate and OnDelete know neither. Who chooses the nodes of an
// in-place update by hand has no surge.
func Bounds(o Observed) (surge, unavailable int) {
	if o.Replicas <= 0 || o.Strategy == Recreate || o.Strategy == OnDelete {
		return 0, 0
	}
	if o.Strategy != InPlaceManual {
		surge = o.Surge.of(o.Replicas, true)
	}
	unavailable = o.Unavailable.of(o.Replicas, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, min(unavailable, o.Replicas)
}

// most is what the annotation max-replicas says. Source: MCM, where only a rolling update counts its surge there.
func most(o Observed) int {
	surge, _ := Bounds(o)
	if o.Strategy != RollingUpdate {
		surge = 0
	}
	return o.Replicas + surge
}

// inPlace reports whether machines keep their instance.
func (o Observed) inPlace() bool { return o.Strategy == InPlaceAuto || o.Strategy == InPlaceManual }

// staged reports whether the strategy knows stages: the others let nobody say how many new machines there are.
func (o Observed) staged() bool {
	return o.Strategy == RollingUpdate || o.Strategy == InPlaceAuto
}

// Stages returns how many stages a rollout has. Zero: all at once, or the strategy knows none.
func (o Observed) Stages() int {
	if !o.staged() {
		return 0
	}
	return len(o.Steps)
}
