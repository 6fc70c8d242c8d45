{{/* Names and labels. */}}
{{- define "candle.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "candle.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "candle.labels" -}}
{{ include "candle.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "candle.isStateful" -}}
{{- if eq .Values.cache.mode "replica" }}yes{{ end -}}
{{- end }}

{{- define "candle.kind" -}}
{{- if include "candle.isStateful" . }}StatefulSet{{ else }}Deployment{{ end -}}
{{- end }}

{{/* What a pod is, alike in a StatefulSet and in a Deployment. */}}
{{- define "candle.pod" -}}
metadata:
  labels:
    {{- include "candle.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  automountServiceAccountToken: false
  # The drain, the requests under way, and the end of the process.
  terminationGracePeriodSeconds: {{ add .Values.drain.seconds .Values.drain.shutdownSeconds 15 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    # Not a chown of every model at each start.
    fsGroupChangePolicy: OnRootMismatch
    {{- with .Values.supplementalGroups }}
    supplementalGroups:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    seccompProfile:
      type: RuntimeDefault
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: candle
      image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default (printf "%s-%s" .Chart.AppVersion .Values.device)) | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        {{- include "candle.args" . | nindent 8 }}
      env:
        - name: HF_HOME
          value: /models
        - name: X_CACHE_DIR
          value: /models/kernels
        {{- if .Values.hub.offline }}
        - name: HF_HUB_OFFLINE
          value: '1'
        {{- end }}
        {{- if .Values.hub.existingSecret }}
        - name: HF_TOKEN
          valueFrom:
            secretKeyRef:
              name: {{ .Values.hub.existingSecret }}
              key: {{ .Values.hub.tokenKey }}
        {{- end }}
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - name: http
          containerPort: {{ .Values.serve.port }}
      # Until the models are there the server is not ready, and may not listen yet: only then do the others begin.
      startupProbe:
        httpGet:
          path: /ready
          port: http
        periodSeconds: 5
        failureThreshold: {{ div .Values.probes.startupSeconds 5 }}
      readinessProbe:
        httpGet:
          path: /ready
          port: http
        periodSeconds: {{ .Values.probes.readySeconds }}
        timeoutSeconds: 2
        failureThreshold: 2
      livenessProbe:
        httpGet:
          path: /live
          port: http
        periodSeconds: {{ .Values.probes.liveSeconds }}
        timeoutSeconds: 10
        failureThreshold: 3
      resources:
        {{- include "candle.resources" . | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      volumeMounts:
        - name: models
          mountPath: /models
        - name: tmp
          mountPath: /tmp
        {{- if .Values.auth.existingSecret }}
        - name: keys
          mountPath: /run/secrets/candle
          readOnly: true
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    {{- if eq .Values.cache.mode "none" }}
    - name: models
      emptyDir:
        sizeLimit: {{ .Values.cache.size }}
    {{- else if eq .Values.cache.mode "shared" }}
    - name: models
      persistentVolumeClaim:
        claimName: {{ .Values.cache.existingClaim | default (printf "%s-models" (include "candle.name" .)) }}
    {{- end }}
    {{- if .Values.auth.existingSecret }}
    - name: keys
      secret:
        secretName: {{ .Values.auth.existingSecret }}
        items:
          - key: {{ .Values.auth.keysKey }}
            path: keys
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* The command line, without a shell. */}}
{{- define "candle.args" -}}
{{- if not (or .Values.models .Values.embedding) }}{{ fail "models and embedding are empty: name at least one model" }}{{ end -}}
{{- if not (or .Values.auth.existingSecret .Values.auth.allowOpenNetwork) }}{{ fail "there is no key: name a secret in auth.existingSecret, or set auth.allowOpenNetwork where that is meant" }}{{ end -}}
- serve
{{- range .Values.models }}
- {{ printf "%s=%s" .name .source | quote }}
{{- end }}
{{- range .Values.embedding }}
- {{ printf "--embedding=%s=%s" .name .source | quote }}
{{- end }}
- --host=0.0.0.0
- --port={{ .Values.serve.port }}
- --device={{ if eq .Values.device "cpu" }}cpu{{ else }}{{ .Values.device }}:0{{ end }}
- --preload
- --drain={{ .Values.drain.seconds }}
- --shutdown-timeout={{ .Values.drain.shutdownSeconds }}
- --max-sequences={{ int64 .Values.serve.maxSequences }}
- --max-waiting={{ int64 .Values.serve.maxWaiting }}
{{- if .Values.serve.context }}
- --context={{ int64 .Values.serve.context }}
{{- end }}
{{- range .Values.serve.allowedHosts }}
- {{ printf "--allowed-host=%s" . | quote }}
{{- end }}
{{- if .Values.auth.existingSecret }}
- --api-key-file=/run/secrets/candle/keys
{{- else }}
- --allow-open-network
{{- end }}
{{- if .Values.serve.log }}
- --log
{{- end }}
{{- range .Values.serve.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* What the pod asks for, with the GPUs of its device. */}}
{{- define "candle.resources" -}}
{{- $all := deepCopy .Values.resources }}
{{- if ne .Values.device "cpu" }}
{{- $_ := set $all "limits" (merge (dict (get .Values.gpuResource .Values.device) .Values.gpus) ($all.limits | default dict)) }}
{{- end }}
{{- toYaml $all }}
{{- end }}
