package component

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/csv"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The identities of the stack. Each process has its own identity, so that the audit log shows the sender of each
// request.
const (
	AdminIdentity    = "admin" // identity of people and of kubectl
	TestIdentity     = "test"  // identity of integration tests
	StarterIdentity  = "millwright"
	WorkerIdentity   = "millwright-worker"
	BridgeIdentity   = "millwright-bridge"
	ProviderIdentity = "millwright-provider"
	MCMIdentity      = "machine-controller-manager"

	ClusterAPIIdentity = "cluster-api" // identity of all programs of Cluster API
)

// SecretsRole is Millwright's ClusterRole that lets a provider's worker read Secrets.
const SecretsRole = "millwright-provider-secrets"

// MillwrightUserNames returns the users of worker, bridge and provider worker.
func MillwrightUserNames() []string {
	return []string{WorkerIdentity, BridgeIdentity, ProviderIdentity}
}

// UsersOfRole returns the users that have one of Millwright's roles (deploy/rbac) in the stack; nil for any other role.
// The worker may read Secrets, because it also polls the task queue of the virtual provider.
func UsersOfRole(role string) []string {
	switch role {
	case WorkerIdentity, BridgeIdentity, ProviderIdentity:
		return []string{role}
	case "millwright-cluster-api-worker", "millwright-cluster-api-objects", "millwright-cluster-api-drains",
		"millwright-objects":
		return []string{WorkerIdentity}
	case "millwright-cluster-api-bridge":
		return []string{BridgeIdentity}
	case SecretsRole:
		return []string{WorkerIdentity}
	}
	return nil
}

// identity is one user of the API server.
type identity struct {
	name  string // name of the identity and of its kubeconfig
	user  string // user name at the API server
	group string // the user's group; empty: only RBAC gives permissions to the user
}

// mastersGroup is the group with all permissions. The members of mastersGroup are Kubernetes components, other
// controllers, tests and the human user. Worker and bridge are not members of this group, because they have only the
// permissions in Millwright's manifests.
const mastersGroup = "system:masters"

func identities() []identity {
	return []identity{
		{AdminIdentity, AdminIdentity, mastersGroup},
		{ControllerManager, "system:" + ControllerManager, ""},
		{Scheduler, "system:" + Scheduler, ""},
		{Kwok, Kwok, mastersGroup},
		{VirtualCloud, VirtualCloud, mastersGroup},
		{WorkerIdentity, WorkerIdentity, ""},
		{BridgeIdentity, BridgeIdentity, ""},
		{ProviderIdentity, ProviderIdentity, ""},
		{MCMIdentity, MCMIdentity, mastersGroup},
		{ClusterAPIIdentity, ClusterAPIIdentity, mastersGroup},
		{StarterIdentity, StarterIdentity, mastersGroup},
		{TestIdentity, TestIdentity, mastersGroup},
	}
}

// IdentityNames returns the names of all identities.
func IdentityNames() []string {
	var names []string
	for _, who := range identities() {
		names = append(names, who.name)
	}
	return names
}

// writeIdentities writes a new token and kubeconfig for each identity. The API server reads the tokens when it starts.
func writeIdentities(l StackFolder, server string) error {
	var table strings.Builder
	rows := csv.NewWriter(&table)
	for _, who := range identities() {
		token := rand.Text()
		if err := rows.Write([]string{token, who.user, who.name, who.group}); err != nil {
			return fmt.Errorf("write token of %s: %w", who.name, err)
		}
		if err := clientcmd.WriteToFile(
			newKubeconfig(server, l.APIServerCertificateFile(), who.name, token),
			l.KubeconfigFile(who.name),
		); err != nil {
			return fmt.Errorf("write kubeconfig of %s: %w", who.name, err)
		}
	}
	rows.Flush()
	if err := os.WriteFile(l.tokensFile(), []byte(table.String()), 0o600); err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	return nil
}

// newKubeconfig returns the kubeconfig of a user. The kubeconfig contains the path of the API server's certificate
// instead of its data, because the API server creates the certificate later.
func newKubeconfig(server, authority, name, token string) clientcmdapi.Config {
	const cluster = "devstack"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: authority}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: name, Namespace: "default"}
	config.CurrentContext = name
	return *config
}

// writeServiceAccountKey creates the key that signs ServiceAccount tokens, unless the file exists.
func writeServiceAccountKey(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("make key for ServiceAccounts: %w", err)
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		return fmt.Errorf("write key for ServiceAccounts: %w", err)
	}
	return nil
}
