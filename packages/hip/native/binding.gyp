{
  "targets": [
    {
      "target_name": "hip",
      "sources": [
        "<!@(node -p \"['.','host'].flatMap((d) => require('fs').readdirSync(d).filter((f) => f.endsWith('.cc') && !f.includes('test')).sort().map((f) => d + '/' + f)).join(' ')\")"
      ],
      "include_dirs": ["<!(node -p \"require('node-addon-api').include_dir\")"],
      "defines": ["NAPI_VERSION=9", "NODE_ADDON_API_CPP_EXCEPTIONS_ALL", "NODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS"],
      "cflags!": ["-fno-exceptions"],
      "cflags_cc!": ["-fno-exceptions", "-fno-rtti", "-std=gnu++14", "-std=gnu++17", "-std=gnu++20"],
      "cflags_cc": ["-std=c++17", "-fexceptions", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-Wall", "-Wextra"],
      "conditions": [
        ["OS=='linux'", { "libraries": ["-ldl", "-lpthread"] }]
      ]
    }
  ]
}
