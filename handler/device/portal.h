/* portal.h - why an iSCSI portal does not answer. */
#ifndef PLX_PORTAL_H
#define PLX_PORTAL_H

/* HOST, HOST:PORT or [HOST]:PORT, to which no login came through: connects once more, and says what
 * is wrong with the portal itself; NULL: it can be reached. */
const char *plx_portal_fault(const char *portal);

#endif
