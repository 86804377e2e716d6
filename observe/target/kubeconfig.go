// Package target connects to the clusters that machines join: one connection for each namespace of the control cluster,
// by a kubeconfig in a Secret. Package target connects in goroutines of its own: no caller waits for a connection.
package target

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig is a parsed kubeconfig. A Kubeconfig names no files and no programs.
type Kubeconfig struct {
	Config *rest.Config // configuration for clients; without the token
	Token  string       // bearer token; empty: the client has a certificate
	// ClusterID is equal for two kubeconfigs of one cluster: a hash of the server's address and its CA certificates.
	ClusterID string
	// ContentHash is a hash of everything except the token: a client must be made again only if ContentHash changes.
	ContentHash string
}

// maxKubeconfigBytes is the maximum length of a kubeconfig, in bytes. Source: ten times a kubeconfig with the
// certificates of several CAs.
const maxKubeconfigBytes = 64 << 10

// ParseKubeconfig parses a kubeconfig from the key of a Secret. A non-empty token replaces the credentials of the
// kubeconfig's users, including the name of a file with a token. ParseKubeconfig refuses a kubeconfig that names files
// or programs, because a writer of the Secret would make this process read or run them. The errors contain no data of
// the Secret.
func ParseKubeconfig(text []byte, key, token string) (k Kubeconfig, err error) {
	switch {
	case len(text) == 0:
		return k, fmt.Errorf("it has no key %s", key)
	case len(text) > maxKubeconfigBytes:
		return k, fmt.Errorf("the value of %s is longer than %d KiB", key, maxKubeconfigBytes>>10)
	}
	parsed, err := clientcmd.Load(text)
	if err != nil {
		return k, fmt.Errorf("the value of %s is no kubeconfig", key) // the parse error may quote secret data
	}
	if token != "" {
		for _, user := range parsed.AuthInfos {
			*user = clientcmdapi.AuthInfo{Token: token}
		}
	}
	if what := forbiddenKubeconfigPart(parsed); what != "" {
		return k, fmt.Errorf("its kubeconfig names %s, which Millwright does not use", what)
	}
	config, err := clientcmd.NewDefaultClientConfig(*parsed, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return k, errors.New("its kubeconfig has no context that can be used")
	}
	k.Config, k.Token, config.BearerToken = config, config.BearerToken, ""
	k.ClusterID = hashTexts(config.Host, string(config.CAData))
	// The string of a rest.Config leaves out keys, so this hash covers each field whose change requires a new client.
	k.ContentHash = hashTexts(
		config.Host,
		config.APIPath,
		config.Username,
		config.Password,
		fmt.Sprint(config.Impersonate),
		fmt.Sprint(config.Insecure),
		config.ServerName,
		string(
			config.CAData,
		),
		string(config.CertData),
		string(config.KeyData),
		proxyAddress(parsed),
		fmt.Sprint(k.Token == ""),
	)
	return k, nil
}

// proxyAddress returns the address of the proxy in a kubeconfig's current context.
func proxyAddress(config *clientcmdapi.Config) string {
	if current := config.Contexts[config.CurrentContext]; current != nil && config.Clusters[current.Cluster] != nil {
		return config.Clusters[current.Cluster].ProxyURL
	}
	return ""
}

func hashTexts(parts ...string) string {
	sum := sha256.New()
	for _, part := range parts {
		_, _ = fmt.Fprintf(sum, "%d %s", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// forbiddenKubeconfigPart returns the part of a kubeconfig that would make this process run a program or read a file;
// empty if there is none.
func forbiddenKubeconfigPart(config *clientcmdapi.Config) string {
	for _, user := range config.AuthInfos {
		switch {
		case user.Exec != nil:
			return "a program that gives credentials"
		case user.AuthProvider != nil:
			return "an authentication provider"
		case user.TokenFile != "" || user.ClientCertificate != "" || user.ClientKey != "":
			return "a file with credentials"
		}
	}
	for _, cluster := range config.Clusters {
		if cluster.CertificateAuthority != "" {
			return "a file with certificates"
		}
	}
	return ""
}
