// SPDX-License-Identifier: Apache-2.0
/// The versions of generated code that fit this runtime.
///
/// Each generated file names the version that it was generated for, and so does not compile with a runtime that does
/// not have it. A version that is no longer supported stays here as unavailable, with a message about the remedy.
@_documentation(visibility: internal)
public enum GeneratedCode {
    /// Code that decodes and encodes with ``MessageDecoder`` and ``MessageEncoder``.
    public enum Version1 {}
}
