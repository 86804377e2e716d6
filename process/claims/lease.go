package claims

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func holderOf(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// processLeaseName returns the name of the Lease of a process.
func (c *claimer) processLeaseName(identity string) string {
	sum := sha256.Sum256([]byte(identity))
	return processLeasePrefix + c.Role + "-" + hex.EncodeToString(sum[:8])
}

// renewLease renews the Lease of this process.
func (c *claimer) renewLease(ctx context.Context) error {
	leases, name := c.Client.CoordinationV1().Leases(c.Namespace), c.processLeaseName(c.Identity)
	lease := c.ownLease
	if lease == nil { // the first renewal, or the last renewal failed
		found, err := leases.Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("read Lease %s: %w", name, err)
		}
		if err == nil {
			lease = found
		}
	}
	isNew := lease == nil
	if isNew {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	lease = lease.DeepCopy()
	lease.Labels = map[string]string{labelRole: c.Role}
	lease.Annotations = map[string]string{annotationShardCount: strconv.Itoa(c.ShardCount)}
	if len(c.AllowedShards) > 0 {
		lease.Annotations[annotationAllowedShards] = formatShards(c.AllowedShards)
	}
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: &c.Identity, RenewTime: new(metav1.NowMicro()),
		LeaseDurationSeconds: new(int32(deadAfter / time.Second)),
	}
	var err error
	if isNew {
		c.ownLease, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		c.ownLease, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		c.ownLease = nil
		return fmt.Errorf("renew Lease %s: %w", name, err)
	}
	c.lastRenewal = time.Now()
	return nil
}

// claimShard writes that this process serves a shard, and starts to serve it. A nil Lease does not exist.
func (c *claimer) claimShard(ctx context.Context, shard int, lease *coordinationv1.Lease) error {
	err := c.writeHolder(ctx, shard, lease, c.Identity)
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err): // another process was faster
		return nil
	case err != nil:
		return fmt.Errorf("claim shard %d: %w", shard, err)
	}
	c.startServing(shard)
	return nil
}

// releaseShard writes that nobody serves a shard, and stops to serve it.
func (c *claimer) releaseShard(ctx context.Context, shard int, lease *coordinationv1.Lease) error {
	c.stopServing(shard)
	if err := c.writeHolder(
		ctx,
		shard,
		lease,
		"",
	); err != nil && !apierrors.IsConflict(err) &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("release shard %d: %w", shard, err)
	}
	return nil
}

func (c *claimer) writeHolder(ctx context.Context, shard int, lease *coordinationv1.Lease, holder string) error {
	leases := c.Client.CoordinationV1().Leases(c.Namespace)
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name:   ShardLeaseName(c.Role, shard),
			Labels: map[string]string{labelRole: c.Role, labelShard: strconv.Itoa(shard)},
		}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: new(metav1.NowMicro())}}
		_, err := leases.Create(ctx, lease, metav1.CreateOptions{})
		return err
	}
	lease = lease.DeepCopy()
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &holder, new(metav1.NowMicro())
	_, err := leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

// deleteLeftoverLeases deletes the Leases of killed processes, at most once in cleanupInterval.
func (c *claimer) deleteLeftoverLeases(ctx context.Context) {
	if time.Since(c.lastCleanup) < cleanupInterval {
		return
	}
	c.lastCleanup = time.Now()
	for _, item := range c.informer.GetStore().List() {
		lease := item.(*coordinationv1.Lease)
		_, isShard := lease.Labels[labelShard]
		if r := lease.Spec.RenewTime; isShard || r == nil || time.Since(r.Time) < leftoverAfter || c.isAlive(lease.Name) {
			continue
		}
		err := c.Client.CoordinationV1().Leases(c.Namespace).Delete(ctx, lease.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			c.Log.Warn("the Lease of a killed process is not deleted, will try again", "lease", lease.Name, "error", err)
		}
	}
}

// parseShards returns the numbers in a list that is separated by commas. parseShards leaves out what is no number.
func parseShards(text string) (shards []int) {
	for part := range strings.SplitSeq(text, ",") {
		if n, err := strconv.Atoi(strings.TrimSpace(part)); err == nil && n >= 0 {
			shards = append(shards, n)
		}
	}
	slices.Sort(shards)
	return slices.Compact(shards)
}

func formatShards(shards []int) string {
	texts := make([]string, len(shards))
	for i, n := range shards {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ",")
}
