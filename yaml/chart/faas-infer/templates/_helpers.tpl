{{/* The name of the provider's objects, and the beginning of the names of others. */}}
{{- define "faas-infer.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name }}
{{- end }}

{{/* The label app.kubernetes.io/name of the provider. It is among the labels that its Deployment selects, which
no upgrade can change. So it does not depend on the chart's alias in a parent chart. */}}
{{- define "faas-infer.name" -}}
{{- .Values.nameOverride | default "faas-infer" }}
{{- end }}

{{/* The labels by which the provider's pods are selected. */}}
{{- define "faas-infer.selector" -}}
{app.kubernetes.io/name: {{ include "faas-infer.name" . }}, app.kubernetes.io/component: provider}
{{- end }}

{{/* A text as the value of a label. */}}
{{- define "faas-infer.labelValue" -}}
{{- regexReplaceAll "[^-A-Za-z0-9_.]" . "_" | trunc 63 | trimAll "-_." }}
{{- end }}

{{/* The labels and annotations of an object: (dict "root" $ "component" "provider"). name is another
app.kubernetes.io/name; labels and annotations are more of them, which hold before the common ones. */}}
{{- define "faas-infer.meta" -}}
{{- $root := .root }}
{{- $own := dict
  "app.kubernetes.io/name" (.name | default (include "faas-infer.name" $root))
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/version" (include "faas-infer.labelValue" $root.Chart.AppVersion)
  "app.kubernetes.io/component" .component
  "app.kubernetes.io/part-of" "faas-infer"
  "app.kubernetes.io/managed-by" $root.Release.Service
  "helm.sh/chart" (include "faas-infer.labelValue" (printf "%s-%s" $root.Chart.Name $root.Chart.Version)) }}
labels: {{- mergeOverwrite (dict) ($root.Values.commonLabels | default dict) $own (.labels | default dict) | toYaml | nindent 2 }}
{{- with mergeOverwrite (dict) ($root.Values.commonAnnotations | default dict) (.annotations | default dict) }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The labels and annotations of a pod: (dict "root" $ "component" "nats" "name" "nats" "of" .Values.nats). The
version is not among them: pods whose image stays need no restart for a new version of the chart. The labels that
are selected hold before the user's. */}}
{{- define "faas-infer.podMeta" -}}
{{- $root := .root }}
{{- $own := dict
  "app.kubernetes.io/name" (.name | default (include "faas-infer.name" $root))
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/component" .component
  "app.kubernetes.io/part-of" "faas-infer" }}
labels: {{- mergeOverwrite (dict) ($root.Values.commonLabels | default dict) (.of.podLabels | default dict) $own (.labels | default dict) | toYaml | nindent 2 }}
{{- with mergeOverwrite (dict) ($root.Values.commonAnnotations | default dict) (.annotations | default dict) (.of.podAnnotations | default dict) }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The name of an image: (list $ .Values.gateway.image). A registry of the values takes the place of the one in
the repository. A digest holds before the tag. Values of chart 0.1 have the whole name as a text. */}}
{{- define "faas-infer.image" -}}
{{- $root := first . }}
{{- $of := last . }}
{{- if kindIs "string" $of }}{{ $of }}{{ else }}
{{- $repository := $of.repository }}
{{- with $of.registry | default ($root.Values.global).imageRegistry }}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "") }}
{{- end }}
{{- $repository }}{{ if $of.digest }}@{{ $of.digest }}{{ else }}:{{ $of.tag | default $root.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* A container's image, and when it is pulled: (list $ .Values.gateway.image). */}}
{{- define "faas-infer.imageOf" -}}
image: {{ include "faas-infer.image" . }}
imagePullPolicy: {{ if kindIs "string" (last .) }}IfNotPresent{{ else }}{{ (last .).pullPolicy }}{{ end }}
{{- end }}

{{/* The pull secrets of all pods, which the values name or have as in a pod. */}}
{{- define "faas-infer.pullSecrets" -}}
{{- with concat (($.Values.global).imagePullSecrets | default list) .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - {name: {{ if kindIs "string" . }}{{ . }}{{ else }}{{ .name }}{{ end }}}
  {{- end }}
{{- end }}
{{- end }}

{{/* The provider's ServiceAccount. */}}
{{- define "faas-infer.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "faas-infer.fullname" .) }}
{{- else }}{{ required "serviceAccount.create is false and serviceAccount.name is empty: name the provider's ServiceAccount, or let the chart create it" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The Service by which users reach the API: the gateway's, or the provider's. */}}
{{- define "faas-infer.front" -}}
{{- if .Values.gateway.enabled }}gateway{{ else }}{{ include "faas-infer.fullname" . }}-api{{ end }}
{{- end }}

{{/* The spec of that Service, but for what it selects. */}}
{{- define "faas-infer.frontSpec" -}}
{{- with .Values.service }}
{{- if ne .type "ClusterIP" }}
type: {{ .type }}
{{- end }}
ipFamilyPolicy: {{ .ipFamilyPolicy }}
{{- with .loadBalancerClass }}
loadBalancerClass: {{ . }}
{{- end }}
{{- with .loadBalancerSourceRanges }}
loadBalancerSourceRanges: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .externalTrafficPolicy }}
externalTrafficPolicy: {{ . }}
{{- end }}
ports:
  - {name: http, port: {{ .port }}, targetPort: http{{ with .nodePort }}, nodePort: {{ . }}{{ end }}{{ with .appProtocol }}, appProtocol: {{ . }}{{ end }}}
{{- end }}
{{- end }}

{{/* Where the pods of one component run, and who may pull its image. Call it with the chart's root
and the component's values: (list $ .Values.gateway). */}}
{{- define "faas-infer.placement" -}}
{{- $of := last . }}
{{- include "faas-infer.pullSecrets" (first .) }}
{{- with $of.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* The topologySpreadConstraints of a component, which may be none. */}}
{{- define "faas-infer.spread" -}}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The security contexts of pods and containers. A key that is null in the values is left out:
OpenShift chooses users itself. */}}
{{- define "faas-infer.podSecurity" -}}
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- end }}
{{- define "faas-infer.security" -}}
securityContext: {{- toYaml .Values.securityContext | nindent 2 }}
{{- end }}

{{/* The rest of an endpoint of a PodMonitor or a ServiceMonitor: (list "http" .Values.podMonitor). */}}
{{- define "faas-infer.endpoint" -}}
{{- $of := last . -}}
- port: {{ first . }}
  path: /metrics
  interval: {{ $of.interval }}
  {{- with $of.scrapeTimeout }}
  scrapeTimeout: {{ . }}
  {{- end }}
  {{- with $of.relabelings }}
  relabelings: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $of.metricRelabelings }}
  metricRelabelings: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* The values of the monitor that is on, as JSON; "null" if none is. */}}
{{- define "faas-infer.monitor" -}}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled }}
{{- fail "podMonitor.enabled and serviceMonitor.enabled are both true: every replica would be scraped twice; set one of them to false" }}
{{- end }}
{{- if .Values.podMonitor.enabled }}{{ toJson .Values.podMonitor }}{{ else if .Values.serviceMonitor.enabled }}{{ toJson .Values.serviceMonitor }}{{ else }}null{{ end }}
{{- end }}

{{/* The name of the secret with the credentials of NATS, "" for none. */}}
{{- define "faas-infer.natsSecret" -}}
{{- if .Values.nats.url }}{{ .Values.nats.credentialsSecret }}{{ else if .Values.nats.enabled }}{{ .Values.nats.credentialsSecret | default "nats-auth" }}{{ end }}
{{- end }}

{{/* The name of the secret with the certificate of the NATS server that the chart installs, "" for
none. Without a name there is one only if cert-manager makes it. */}}
{{- define "faas-infer.ownNatsTLS" -}}
{{- if and .Values.nats.enabled .Values.tls.enabled }}{{ .Values.tls.natsSecretName | default (ternary "faas-infer-nats-tls" "" .Values.tls.certManager.enabled) }}{{ end }}
{{- end }}

{{/* The name of the secret with the authority of the NATS server, "" for none. Of the server that the
chart installs, nobody else mounts more than that. */}}
{{- define "faas-infer.natsTLS" -}}
{{- if .Values.nats.url }}{{ .Values.nats.tlsSecret }}{{ else }}{{ include "faas-infer.ownNatsTLS" . }}{{ end }}
{{- end }}

{{/* The gateway's NATS address. Its library takes the credentials from the address. An IPv6 address
keeps its brackets. */}}
{{- define "faas-infer.gatewayNats" -}}
{{- $nats := urlParse (.Values.nats.url | default (printf "nats://nats.%s.svc.cluster.local:4222" .Release.Namespace)) }}
- {name: faas_nats_address, value: {{ printf "%s%s" (ternary "$(NATS_USERNAME):$(NATS_PASSWORD)@" "" (ne (include "faas-infer.natsSecret" .) "")) (regexReplaceAll ":[0-9]+$" $nats.host "") | quote }}}
- {name: faas_nats_port, value: {{ regexFind ":[0-9]+$" $nats.host | trimPrefix ":" | default "4222" | quote }}}
- {name: faas_nats_streaming, value: "true"}
- {name: faas_nats_cluster_name, value: faas-cluster}
- {name: faas_nats_channel, value: faas-request}
{{- end }}

{{/* The directories with authorities that the gateway knows beside its image's: each begins with a
colon. */}}
{{- define "faas-infer.gatewayAuthorities" -}}
{{- if include "faas-infer.natsTLS" . }}:/var/nats-tls{{ end }}
{{- if .Values.tls.enabled }}:/var/tls{{ end }}
{{- end }}
