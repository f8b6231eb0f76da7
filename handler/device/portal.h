/* portal.h - why an iSCSI portal does not answer. */
#ifndef PLX_PORTAL_H
#define PLX_PORTAL_H

/* After a login has failed: connects to the portal once more and says what is wrong with it; NULL:
 * it can be reached. portal: HOST, HOST:PORT or [HOST]:PORT. */
const char *plx_portal_fault(const char *portal);

#endif
