package kubecli

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/observe/shard"
	"millwright/workflows/run"
)

// Shards are the shards of an installation, as a command sees them.
type Shards struct {
	Installation run.Installation
	Count        int    // number of shards
	Namespace    string // namespace of the record and of the Leases; empty: the installation has one shard
	Table        shard.Table
}

// ReadShards reads the shards of an installation. An installation with one shard has no record, and ReadShards then
// sends only the request for the Lease of the workers. ReadShards returns an error if the record of an installation
// with several shards cannot be read.
func (c Clients) ReadShards(ctx context.Context, of run.Installation) (Shards, error) {
	shards := Shards{Installation: of, Count: 1}
	for _, lease := range c.listWorkerLeases(ctx) {
		if _, several := lease.Annotations[v1alpha1.AnnotationShards]; !several ||
			lease.Annotations[v1alpha1.AnnotationInstallation] != string(of) {
			continue
		}
		record, err := c.Core.ConfigMaps(lease.Namespace).Get(ctx, shard.RecordName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			record, err = nil, nil
		}
		if err != nil {
			return shards, fmt.Errorf("read the shards of installation %s: %w", of, err)
		}
		table, err := shard.ParseTable(record)
		shards.Count, shards.Namespace, shards.Table = max(table.Count, 1), lease.Namespace, table
		return shards, err //nolint:wrapcheck // the error names the ConfigMap
	}
	return shards, nil
}

// ShardOfNamespace returns the shard of a namespace. A namespace without a recorded shard gets shard 0.
func (s Shards) ShardOfNamespace(namespace string) run.Shard {
	number, _ := s.Table.ShardOfNamespace(namespace)
	return s.Installation.Shard(number)
}

// List returns all shards.
func (s Shards) List() (all []run.Shard) {
	for number := range s.Count {
		all = append(all, s.Installation.Shard(number))
	}
	return all
}

// FindLeaseNamespace returns the namespace of the Lease of the workers, which also has the ConfigMaps of the
// installation. found is false if no worker has run, or if several installations have Leases in different namespaces.
func (c Clients) FindLeaseNamespace(ctx context.Context) (namespace string, found bool) {
	for _, lease := range c.listWorkerLeases(ctx) {
		if found && lease.Namespace != namespace {
			return "", false
		}
		namespace, found = lease.Namespace, true
	}
	return namespace, found
}
