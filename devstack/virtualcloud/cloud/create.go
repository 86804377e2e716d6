package cloud

import (
	"context"
	"errors"
	"hash/fnv"
	"math"
	"strings"
	"time"

	"millwright/provider"
	"millwright/provider/virtual"
)

// errExpired is the cause of a refusal: the create request came after the time in its field NotAfter. The answer then
// has the reason virtual.ReasonExpired.
var errExpired = errors.New("expired")

// pendingCreate is one accepted create request that is not answered yet.
type pendingCreate struct {
	request virtual.CreateRequest
	epoch   int
	accept  time.Time     // time at which the instance gets its record
	runs    time.Time     // time at which the instance runs and the request is answered
	grace   time.Duration // how much later than the request's NotAfter the record may be stored
}

// create creates an instance. An accepted request takes effect even if the client closes the connection, as in a real
// cloud; the error then only says that the client is gone.
func (c *Cloud) create(ctx context.Context, request virtual.CreateRequest) (virtual.Instance, error) {
	if err := validateCreate(request); err != nil {
		return virtual.Instance{}, err
	}
	now := time.Now()
	if err := c.checkExpired(request, now, 0); err != nil {
		return virtual.Instance{}, err
	}
	c.mu.Lock()
	b := c.behaviour
	way := pendingCreate{request: request, epoch: c.epoch, grace: time.Duration(b.AcceptLatency)}
	c.mu.Unlock()
	way.accept = now.Add(way.grace)
	way.runs = now.Add(time.Duration(classValueOr(request.Spec.CreateLatency, b.CreateLatency)) + latencySpread(request))
	if way.runs.Before(way.accept) {
		way.runs = way.accept
	}
	if !way.runs.After(now) {
		return c.acceptCreate(way)
	}
	type result struct {
		instance virtual.Instance
		err      error
	}
	done := make(chan result, 1)
	c.countCreating(1)
	c.work.Go(func() {
		instance, err := c.carryOut(way)
		c.countCreating(-1) // before the answer: a caller that has its answer must not be in Stats.Creating any more
		done <- result{instance, err}
	})
	select {
	case r := <-done:
		return r.instance, r.err
	case <-ctx.Done():
		return virtual.Instance{}, provider.Errorf(provider.Canceled, "the client went away")
	}
}

// latencySpread returns by how much the create latency of an instance differs from that of its class: from
// -createSpread to +createSpread, always the same for the same name.
func latencySpread(request virtual.CreateRequest) time.Duration {
	if request.Spec.CreateSpread == nil {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(request.Name)) // never fails
	part := 2*float64(h.Sum32())/math.MaxUint32 - 1
	return time.Duration(part * float64(*request.Spec.CreateSpread))
}

// carryOut stores the record of the instance when that is due, and returns when the instance runs.
func (c *Cloud) carryOut(way pendingCreate) (virtual.Instance, error) {
	if err := c.sleepUntil(way.accept); err != nil {
		return virtual.Instance{}, err
	}
	instance, err := c.acceptCreate(way)
	if err != nil || instance.State == virtual.StateRunning {
		return instance, err
	}
	if err := c.sleepUntil(way.runs); err != nil {
		return virtual.Instance{}, err
	}
	instance.State = virtual.StateRunning
	return instance, nil
}

// acceptCreate stores the record of the instance, or returns the earlier instance of the request's client token.
func (c *Cloud) acceptCreate(way pendingCreate) (virtual.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	request := way.request
	if way.epoch != c.epoch {
		return virtual.Instance{}, provider.Errorf(provider.Aborted, "the cloud was reset")
	}
	if err := c.checkExpiredLocked(request, now, way.grace); err != nil {
		return virtual.Instance{}, err
	}
	if earlier := c.world.records[c.world.byToken[request.ClientToken]]; c.behaviour.ClientTokens &&
		request.ClientToken != "" && earlier != nil && earlier.existsAt(now) {
		c.stats.TokenReplays++
		return earlier.instanceAt(now), nil
	}
	if err := c.checkQuota(request, now); err != nil {
		return virtual.Instance{}, err
	}
	return c.createRecord(request, now, way.runs)
}

// createRecord creates the record of the instance. The lock is held.
func (c *Cloud) createRecord(request virtual.CreateRequest, now, runs time.Time) (virtual.Instance, error) {
	if runs.Before(now) {
		runs = now
	}
	r := record{
		Number: c.world.next, Name: request.Name, Tags: request.Tags, Spec: request.Spec, ClientToken: request.ClientToken,
		Accepted: now, Runs: runs,
		Boots: runs.Add(time.Duration(classValueOr(request.Spec.BootLatency, c.behaviour.BootLatency))),
	}
	if r.NodeInit = time.Duration(c.behaviour.NodeInit); c.behaviour.OwnNodeNames {
		r.NodeName = "ip-" + strings.ReplaceAll(r.address(), ".", "-")
	}
	if err := c.commit(created, r, request.UserData); err != nil {
		return virtual.Instance{}, err
	}
	c.log.Debug("instance accepted", "instance", r.id(), "machine", r.Tags.Machine)
	c.registry.scheduleLook(r.Number, time.Until(r.Boots))
	return r.instanceAt(now), nil
}

// checkQuota refuses an instance above a quota. The lock is held.
func (c *Cloud) checkQuota(request virtual.CreateRequest, now time.Time) error {
	spec := request.Spec
	if spec.Quota == nil && len(c.behaviour.Quotas) == 0 {
		return nil
	}
	keys := func(s virtual.Spec) []string {
		return []string{"total", s.Zone, s.InstanceType, s.Zone + "/" + s.InstanceType}
	}
	used, ofClass := map[string]int{}, 0
	for _, r := range c.world.liveAt(now) {
		for _, key := range keys(r.Spec) {
			used[key]++
		}
		if r.Tags.Class == request.Tags.Class && r.Tags.Cluster == request.Tags.Cluster {
			ofClass++
		}
	}
	for _, key := range keys(spec) {
		if limit, limited := c.behaviour.Quotas[key]; limited && used[key] >= limit {
			return provider.Errorf(provider.ResourceExhausted, "quota of %d instances for %s is used up", limit, key)
		}
	}
	if spec.Quota != nil && ofClass >= *spec.Quota {
		return provider.Errorf(
			provider.ResourceExhausted,
			"quota of %d instances for class %s is used up",
			*spec.Quota,
			request.Tags.Class,
		)
	}
	return nil
}

// checkExpired returns an error for a request that arrived too late, or whose record would be stored too late.
func (c *Cloud) checkExpired(request virtual.CreateRequest, now time.Time, grace time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checkExpiredLocked(request, now, grace)
}

func (c *Cloud) checkExpiredLocked(request virtual.CreateRequest, now time.Time, grace time.Duration) error {
	if request.NotAfter.IsZero() || !now.After(request.NotAfter.Add(grace)) {
		return nil
	}
	c.stats.Expired++
	late := now.Sub(request.NotAfter.Add(grace)).Round(time.Millisecond)
	refusal := provider.Errorf(provider.Aborted, "the request came %s after its time", late)
	refusal.Cause = errExpired
	return refusal
}

// CreateByHand creates an instance at once, regardless of faults, quotas and client tokens.
func (c *Cloud) CreateByHand(request virtual.CreateRequest) (virtual.Instance, error) {
	if err := validateCreate(request); err != nil {
		return virtual.Instance{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	request.ClientToken = ""
	now := time.Now()
	return c.createRecord(request, now, now)
}

func (c *Cloud) countCreating(change int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Creating += change
}

// classValueOr returns the class's value, or else the cloud's.
func classValueOr(class *virtual.Duration, cloud virtual.Duration) virtual.Duration {
	if class != nil {
		return *class
	}
	return cloud
}
