# Users' view: PUBLIC_HEADERS copied to <build>/include/sluice/ with their
# quoted includes rewritten from "engine/x.h" to "sluice/engine/x.h".
