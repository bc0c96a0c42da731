{{/* Where the pods of one component run, and who may pull its image. Call it with the chart's root
and the component's values: (list $ .Values.gateway). */}}
{{- define "faas-infer.placement" -}}
{{- $root := first . }}
{{- $of := last . }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - {name: {{ . }}}
  {{- end }}
{{- end }}
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
