{{- define "millwright.labels" -}}
app.kubernetes.io/part-of: millwright
{{- end -}}

{{/* The name of the ConfigMap that all processes read. */}}
{{- define "millwright.config" -}}
{{ .Values.existingConfigMap | default "millwright" }}
{{- end -}}

{{/* The data of the ConfigMap that all processes read. */}}
{{- define "millwright.settings" -}}
{{- $name := .Values.clusterName | required "clusterName is empty: give this installation a name that no other cluster uses at the same cloud or in the same Temporal namespace" -}}
{{- merge (dict "CLUSTER_NAME" $name "TEMPORAL_ADDRESS" .Values.temporal.address "TEMPORAL_NAMESPACE" .Values.temporal.namespace) .Values.environment | toYaml -}}
{{- end -}}

{{/* An image reference. Keys: root, image, of (the path of the image's values, for error messages). */}}
{{- define "millwright.image" -}}
{{- $repository := .image.repository | required (printf "%s.image.repository is empty: say which image runs" .of) -}}
{{- if .image.digest -}}
{{ $repository }}@{{ .image.digest }}
{{- else -}}
{{ $repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "millwright.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "millwright.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* The fields of all pods for scheduling and priority. */}}
{{- define "millwright.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with .Values.priorityClass.name }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{/* A role binding of a service account. Keys: root; account; kind (of the role); role; namespace (without it a cluster role binding);
name (default: the account's name). */}}
{{- define "millwright.binding" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ if .namespace }}RoleBinding{{ else }}ClusterRoleBinding{{ end }}
metadata:
  name: {{ .name | default .account }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "millwright.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .role }}
subjects:
- kind: ServiceAccount
  name: {{ .account }}
  namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{/* The bindings of a role of a service account in the namespaces that Millwright reconciles: the namespaces in the values, or all.
Keys: root, account, role. */}}
{{- define "millwright.scopedBinding" -}}
{{- $ := . -}}
{{- range .root.Values.namespaces }}
{{- if not (has . $.root.Values.exceptNamespaces) }}
{{ include "millwright.binding" (dict "root" $.root "name" $.role "account" $.account "kind" "ClusterRole" "role" $.role "namespace" .) }}
{{- end }}
{{- else }}
{{ include "millwright.binding" (dict "root" .root "name" .role "account" .account "kind" "ClusterRole" "role" .role) }}
{{- end }}
{{- end -}}

{{/* The list of flags for the connection to Temporal. Secret values are in files; the flags only name the files. */}}
{{- define "millwright.temporalFlags" -}}
{{- with .Values.temporal.tls }}
{{- if .enabled }}
- --temporal-tls
{{- if .secret }}
{{- range $flag, $file := dict "ca" .ca "cert" .certificate "key" .key }}
{{- if $file }}
- --temporal-tls-{{ $flag }}-path=/temporal/tls/{{ $file }}
{{- end }}
{{- end }}
{{- end }}
{{- with .serverName }}
- --temporal-tls-server-name={{ . }}
{{- end }}
{{- else if or .secret .serverName }}
{{- fail "temporal.tls.secret or temporal.tls.serverName is set, and TLS is off: set temporal.tls.enabled" }}
{{- end }}
{{- end }}
{{- if .Values.temporal.apiKeySecret }}
- --temporal-api-key-path=/temporal/api-key/api-key
{{- end }}
{{- end -}}

{{/* The volume mounts of Temporal's Secrets. Each Secret is mounted as a whole folder: Kubernetes does not update a single file that
is mounted with subPath. */}}
{{- define "millwright.temporalMounts" -}}
{{- if and .Values.temporal.tls.enabled .Values.temporal.tls.secret }}
- {name: temporal-tls, mountPath: /temporal/tls, readOnly: true}
{{- end }}
{{- if .Values.temporal.apiKeySecret }}
- {name: temporal-api-key, mountPath: /temporal/api-key, readOnly: true}
{{- end }}
{{- end -}}

{{- define "millwright.temporalVolumes" -}}
{{- if .Values.temporal.tls.enabled }}
{{- with .Values.temporal.tls.secret }}
- name: temporal-tls
  secret: {secretName: {{ . }}}
{{- end }}
{{- end }}
{{- with .Values.temporal.apiKeySecret }}
- name: temporal-api-key
  secret: {secretName: {{ . }}}
{{- end }}
{{- end -}}

{{/* The service account, Deployment and disruption budget of a process. Keys: root; name (the suffix of all names); container; image;
command; args (a list); values (the process's values). */}}
{{- define "millwright.process" -}}
{{- $name := printf "millwright-%s" .name -}}
{{- $root := .root -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "millwright.labels" $root | nindent 4 }}
automountServiceAccountToken: false # whoever runs a pod as this account must ask for the token
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "millwright.labels" $root | nindent 4 }}
spec:
  replicas: {{ .values.replicas }}
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ $name }}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ $name }}
        {{- include "millwright.labels" $root | nindent 8 }}
      {{- if not $root.Values.existingConfigMap }}
      annotations:
        checksum/config: {{ include "millwright.settings" $root | sha256sum }} # a changed value restarts what reads it
      {{- end }}
    spec:
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: true
      {{- include "millwright.placement" $root | nindent 6 }}
      {{- with .values.nodeSelector | default $root.Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      terminationGracePeriodSeconds: 45 # activities under way get 30 s to end; what is cut off is tried again elsewhere
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: ScheduleAnyway # two on one node are better than one
        labelSelector:
          matchLabels:
            app.kubernetes.io/name: {{ $name }}
      securityContext:
        {{- include "millwright.podSecurity" $root | nindent 8 }}
        {{- with .values.supplementalGroups }}
        supplementalGroups: {{ toJson . }}
        {{- end }}
      containers:
      - name: {{ .container }}
        image: {{ .image }}
        {{- with $root.Values.imagePullPolicy }}
        imagePullPolicy: {{ . }}
        {{- end }}
        command: [{{ join ", " .command }}]
        args:
        - --cluster-name=$(CLUSTER_NAME)
        {{- if $root.Values.targetKubeconfigSecret }}
        - --target-kubeconfig=/target/kubeconfig
        {{- end }}
        {{- if gt (int $root.Values.shards) 1 }}
        - {{ printf "--shards=%d" (int $root.Values.shards) | quote }}
        {{- end }}
        {{- with $root.Values.targets }}
        {{- if .secret }}
        - {{ printf "--target-secret=%s" .secret | quote }}
        - {{ printf "--target-secret-key=%s" .key | quote }}
        {{- if .tokenSecret }}
        - {{ printf "--target-token-secret=%s" .tokenSecret | quote }}
        {{- end }}
        {{- end }}
        {{- end }}
        {{- with include "millwright.temporalFlags" $root }}
        {{- trim . | nindent 8 }}
        {{- end }}
        {{- if $root.Values.temporal.payloadKeysSecret }}
        - --payload-keys-path=/payload-keys/keys
        {{- end }}
        {{- range concat .args .values.args }}
        - {{ . | quote }}
        {{- end }}
        env:
        - name: POD_NAMESPACE
          valueFrom:
            fieldRef:
              fieldPath: metadata.namespace
        {{- range $key, $value := .values.env }}
        - name: {{ $key }}
          value: {{ $value | quote }}
        {{- end }}
        envFrom: # TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE are read from the environment
        - configMapRef:
            name: {{ include "millwright.config" $root }}
        ports:
        - name: metrics
          containerPort: 9464
        livenessProbe:
          httpGet: {path: /healthz, port: metrics}
          periodSeconds: 10
          failureThreshold: 6 # a restart loses its caches and helps rarely
        readinessProbe: # ready once the caches are filled; a bridge also where it does not lead
          httpGet: {path: /readyz, port: metrics}
          periodSeconds: 5
        resources:
          {{- toYaml .values.resources | nindent 10 }}
        securityContext:
          {{- include "millwright.containerSecurity" $root | nindent 10 }}
        {{- $mounts := include "millwright.temporalMounts" $root }}
        {{- if or $root.Values.targetKubeconfigSecret $root.Values.temporal.payloadKeysSecret .values.hostPaths $mounts }}
        volumeMounts:
        {{- with $mounts }}
        {{- trim . | nindent 8 }}
        {{- end }}
        {{- if $root.Values.temporal.payloadKeysSecret }}
        - {name: payload-keys, mountPath: /payload-keys, readOnly: true}
        {{- end }}
        {{- if $root.Values.targetKubeconfigSecret }}
        - {name: target, mountPath: /target, readOnly: true}
        {{- end }}
        {{- range $name, $path := .values.hostPaths }}
        - {name: {{ $name }}, mountPath: {{ $path }}}
        {{- end }}
      volumes:
      {{- with include "millwright.temporalVolumes" $root }}
      {{- trim . | nindent 6 }}
      {{- end }}
      {{- with $root.Values.temporal.payloadKeysSecret }}
      - name: payload-keys
        secret: {secretName: {{ . }}}
      {{- end }}
      {{- with $root.Values.targetKubeconfigSecret }}
      - name: target
        secret: {secretName: {{ . }}}
      {{- end }}
      {{- range $name, $path := .values.hostPaths }}
      - name: {{ $name }}
        hostPath: {path: {{ $path }}, type: Directory}
      {{- end }}
      {{- end }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "millwright.labels" $root | nindent 4 }}
spec:
  maxUnavailable: 1
  # Else, when Temporal is away and no pod is ready, the node that each sits on could not be drained.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ $name }}
{{- end -}}

{{/* The list of flags that select Millwright's namespaces, for worker and bridge. */}}
{{- define "millwright.namespaceFlags" -}}
{{- with .Values.namespaces }}
- --namespaces={{ join "," . }}
{{- end }}
{{- with .Values.exceptNamespaces }}
- --except-namespaces={{ join "," . }}
{{- end }}
{{- with .Values.namespaceSelector }}
- {{ printf "--namespace-selector=%s" . | quote }}
{{- end }}
{{- if .Values.autoscalerGuard.namespaces }}
- --hold-by-autoscaler-guard
{{- end }}
{{- end -}}

{{/* The list of flags of worker and bridge for Cluster API objects. */}}
{{- define "millwright.clusterAPIFlags" -}}
{{- with .Values.clusterAPI }}
{{- if .watchFilter }}
- --cluster-api-watch-filter={{ .watchFilter }}
{{- with .upstreamWatchFilter }}
- --cluster-api-upstream-watch-filter={{ . }}
{{- end }}
{{- else if .upstreamWatchFilter }}
{{- fail "clusterAPI.upstreamWatchFilter has no effect without clusterAPI.watchFilter" }}
{{- end }}
{{- end }}
{{- end -}}
