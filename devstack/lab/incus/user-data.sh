#!/bin/sh
# Joins the machine to its cluster: kubelet uses the bootstrap token to get a client certificate.
set -eu
mkdir -p /etc/kubernetes
cat >/etc/kubernetes/ca.crt <<'END'
{{.CA}}
END
cat >/etc/kubernetes/bootstrap.kubeconfig <<'END'
apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster: {server: "{{.Server}}", certificate-authority: /etc/kubernetes/ca.crt}
users:
- name: bootstrap
  user: {token: "<<BOOTSTRAP_TOKEN>>"}
contexts:
- name: bootstrap
  context: {cluster: cluster, user: bootstrap}
current-context: bootstrap
END
chmod 600 /etc/kubernetes/bootstrap.kubeconfig
# Reads from Incus the provider ID that Millwright gave this instance. An instance launched by hand has no such key (404).
ask() {
	printf 'GET /1.0/config/user.provider-id HTTP/1.0\r\nHost: incus\r\n\r\n' | socat -t 10 - UNIX-CONNECT:/dev/incus/sock >/run/answer
	head -n 1 /run/answer | grep -E ' (200|404) '
}
until ask; do sleep 0.2; done
provider_id=incus:///{{.Project}}/<<MACHINE_NAME>>
if head -n 1 /run/answer | grep -q ' 200 '; then provider_id=$(sed '1,/^\r$/d' /run/answer); fi
rm /run/answer
cat >/etc/kubernetes/kubelet.flags.new <<END
--bootstrap-kubeconfig=/etc/kubernetes/bootstrap.kubeconfig
--kubeconfig=/var/lib/kubelet/kubeconfig
--hostname-override=<<MACHINE_NAME>>
--provider-id=$provider_id
END
mv /etc/kubernetes/kubelet.flags.new /etc/kubernetes/kubelet.flags # the script node/kubelet waits for this file
