// SPDX-License-Identifier: Apache-2.0
// An app that makes calls also names errors, endpoints and features, and generated code names messages: one import is
// enough. HHSocket re-exports the modules that its API uses: see its own exports.
@_exported import HHSocket
@_exported import HHSocketMessage
