"""All attacks on servers over HTTP and gRPC, by group."""

from collections.abc import Mapping

from bench.hostile.attack import Attack
from bench.hostile.computation_attacks import COMPUTATION_ATTACKS
from bench.hostile.connection_attacks import CONNECTION_ATTACKS
from bench.hostile.credential_attacks import CREDENTIAL_ATTACKS
from bench.hostile.decoding_attacks import DECODING_ATTACKS
from bench.hostile.gateway_attacks import GATEWAY_ATTACKS
from bench.hostile.grpc_attacks import GRPC_ATTACKS
from bench.hostile.grpc_frame_attacks import GRPC_FRAME_ATTACKS
from bench.hostile.lite_attacks import LITE_ATTACKS
from bench.hostile.memory_attacks import MEMORY_ATTACKS
from bench.hostile.metrics_attacks import METRICS_ATTACKS
from bench.hostile.openapi_attacks import OPENAPI_ATTACKS
from bench.hostile.store_attacks import STORE_ATTACKS

ATTACKS: Mapping[str, tuple[Attack, ...]] = {
    "http": (*DECODING_ATTACKS, *COMPUTATION_ATTACKS, *MEMORY_ATTACKS, *STORE_ATTACKS, *CREDENTIAL_ATTACKS),
    "lite": LITE_ATTACKS,
    "many": (*METRICS_ATTACKS, *CONNECTION_ATTACKS),
    "grpc": (*GRPC_ATTACKS, *GRPC_FRAME_ATTACKS),
    "gateway": GATEWAY_ATTACKS,
    "openapi": OPENAPI_ATTACKS,
}
