# A job with three allocations, one of which leads. In each, the sidecar task zkelectd tells the application whether it does.
job "app" {
  group "app" {
    count = 3

    constraint {
      distinct_hosts = true
    }

    update {
      max_parallel = 1 # the next one stops when this one runs
      health_check = "task_states"
    }

    task "zkelectd" {
      driver = "raw_exec"

      lifecycle {
        hook    = "prestart" # it starts before the application,
        sidecar = true       # and stops after it
      }

      config {
        command = "/usr/bin/zkelectd"
        args    = ["run"]
      }

      env {
        ZKELECTD_NODE_ID             = "app-${NOMAD_ALLOC_INDEX}"
        ZKELECTD_NODE_SITE           = "${node.datacenter}"
        ZKELECTD_ZOOKEEPER_SERVERS   = "zk1:2181,zk2:2181,zk3:2181"
        ZKELECTD_ZOOKEEPER_ROOT      = "/app"
        ZKELECTD_ZOOKEEPER_ACL       = "private"
        ZKELECTD_ZOOKEEPER_AUTH_FILE = "${NOMAD_SECRETS_DIR}/zookeeper.auth"
        ZKELECTD_CHILD_NONE          = "true"
        ZKELECTD_HTTP_LISTEN         = "unix:${NOMAD_ALLOC_DIR}/zkelectd.sock"
      }

      template {
        data        = "{{ with nomadVar \"nomad/jobs/app\" }}{{ .zookeeper_auth }}{{ end }}"
        destination = "secrets/zookeeper.auth"
        perms       = "600"
        change_mode = "noop" # the daemon sees a change
      }

      kill_signal  = "SIGTERM"
      kill_timeout = "10s"
    }

    task "app" {
      driver = "raw_exec"

      config {
        command = "/usr/bin/app"
      }

      env {
        APP_SOCKET = "${NOMAD_ALLOC_DIR}/zkelectd.sock"
      }

      kill_signal  = "SIGTERM"
      kill_timeout = "5s"
    }
  }
}
