package claims

import (
	"context"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// The roles of processes.
const (
	RoleWorker = "worker"
	RoleBridge = "bridge"
)

// selectRole returns the selector of the labels of all Leases of a role.
func selectRole(role string) string { return labelRole + "=" + role }

// ReadHolders reads the Leases of a role from the API server, and returns the live process that serves each shard. A
// process counts as alive if its Lease was renewed within a minute by the clock of the reader, which may differ from
// the clocks of the processes.
func ReadHolders(
	ctx context.Context,
	leases typedcoordinationv1.LeaseInterface,
	role string,
	now time.Time,
) (map[int]string, error) {
	list, err := leases.List(ctx, metav1.ListOptions{LabelSelector: selectRole(role)})
	if err != nil {
		return nil, fmt.Errorf("list the claims of shards: %w", err)
	}
	return liveHolders(list.Items, now), nil
}

func liveHolders(leases []coordinationv1.Lease, now time.Time) map[int]string {
	alive, holders := map[string]bool{}, map[int]string{}
	for i := range leases {
		if _, isShard := leases[i].Labels[labelShard]; !isShard && leases[i].Spec.RenewTime != nil {
			alive[holderOf(&leases[i])] = now.Sub(leases[i].Spec.RenewTime.Time) < maxClockSkew
		}
	}
	for i := range leases {
		shard, err := strconv.Atoi(leases[i].Labels[labelShard])
		if holder := holderOf(&leases[i]); err == nil && alive[holder] {
			holders[shard] = holder
		}
	}
	return holders
}

// ShardLeaseName returns the name of the Lease of a shard.
func ShardLeaseName(role string, shard int) string {
	return "millwright-" + role + "-shard-" + strconv.Itoa(shard)
}
